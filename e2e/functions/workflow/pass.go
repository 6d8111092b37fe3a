package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/service"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

// connections are kept towards the gateway: as many as a fan-out has parts, and some.
const connections = 64

// store is where data is put for others.
type store interface {
	Put(ctx context.Context, bucket, key string, data []byte) error
}

// passer passes data on. Each store is made on the first use.
type passer struct {
	gateway string
	client  *http.Client
	stores  map[step.Passing]func() store
}

func newPasser(env service.Env) *passer {
	return &passer{
		gateway: env("WORKFLOW_GATEWAY"),
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}},
		stores: map[step.Passing]func() store{
			step.Redis: sync.OnceValue(func() store { return input.NewRedis(env("REDIS_ADDRESS"), env("REDIS_PASSWORD")) }),
			step.S3: sync.OnceValue(func() store {
				return input.NewS3(env("S3_ENDPOINT"), env("S3_REGION"), env("S3_ACCESS_KEY_ID"), env("S3_SECRET_ACCESS_KEY"))
			}),
		},
	}
}

// put stores data if that is the way of passing it.
func (p *passer) put(ctx context.Context, passing step.Passing, bucket, key string, data []byte) (time.Duration, error) {
	open, ok := p.stores[passing]
	if !ok {
		return 0, nil
	}
	began := time.Now()
	if err := open().Put(ctx, bucket, key, data); err != nil {
		return 0, fmt.Errorf("putting %s into the store: %w", key, err)
	}
	return time.Since(began), nil
}

// request is for the next function.
type request struct {
	host, path, bucket, key string
	contentType             string
	data                    []byte
	held                    bool
}

// send calls the next function: with the data, or with the name that it has in the store, and
// words of its own, beside which the function finds a stored input as a file only. Data that is
// held is sent when the function is ready, as by a gateway that waits for that: Knative's
// activator.
func (p *passer) send(ctx context.Context, passing step.Passing, q request) (s step.Sent, err error) {
	body := io.Reader(bytes.NewReader(q.data))
	if passing != step.Direct {
		q.contentType, body = input.Words, strings.NewReader("{}")
	}
	if passing == step.Direct && q.held {
		ready := q
		ready.path, ready.data, ready.held = "/healthz", nil, false
		if s, err = p.exchange(ctx, http.MethodGet, ready, nil); err != nil || s.Status != http.StatusOK {
			return s, err
		}
	}
	sent, err := p.exchange(ctx, http.MethodPost, q, body)
	if s.Request != "" {
		sent.At, sent.Request = s.At, s.Request
	}
	return sent, err
}

func (p *passer) exchange(ctx context.Context, method string, q request, body io.Reader) (s step.Sent, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.gateway+q.path, body)
	if err != nil {
		return s, err
	}
	r.Host = q.host
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	r.Header.Set(input.HeaderBucket, q.bucket)
	r.Header.Set(input.HeaderKey, q.key)
	s.At = time.Now()
	resp, err := p.client.Do(r)
	if err != nil {
		return s, fmt.Errorf("calling %s: %w", q.host, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, fmt.Errorf("the answer of %s: %w", q.host, err)
	}
	s.Answered = time.Now()
	s.Request, s.Status, s.Timing = resp.Header.Get("x-headstart-request"), resp.StatusCode, resp.Header.Get("Server-Timing")
	if !json.Valid(answer) { // a problem of who is in between, or nothing
		answer, _ = json.Marshal(string(answer)) // strings always can
	}
	s.Answer = answer
	return s, nil
}
