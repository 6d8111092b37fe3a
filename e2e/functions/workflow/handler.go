package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/service"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

// handler is all of the functions.
type handler struct {
	input   *input.Reader
	pass    *passer
	targets []string
	passing step.Passing
	held    bool

	mu   sync.Mutex
	last step.Order // whose data is kept: making it is no part of the workflow
	data []byte
}

func newHandler(env service.Env) http.Handler {
	h := &handler{input: input.New(env), pass: newPasser(env), targets: strings.Fields(env("WORKFLOW_TARGETS")), passing: step.Passing(env("WORKFLOW_PASSING")), held: env("WORKFLOW_HELD") != ""}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	for path, f := range map[string]func(*http.Request, http.Header) (any, error){"/send": h.send, "/receive": h.receive, "/decode": h.decode} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), service.RequestTimeout)
			defer cancel()
			answer, err := f(r.WithContext(ctx), w.Header())
			if err != nil {
				fail(w, err)
				return
			}
			write(w, http.StatusOK, answer)
		})
	}
	return mux
}

// send makes what the order says and passes it on.
func (h *handler) send(r *http.Request, _ http.Header) (any, error) {
	var o step.Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, &input.Refusal{Status: http.StatusBadRequest, Message: "the body is no order: " + err.Error()}
	}
	data, err := h.made(o)
	if err != nil {
		return nil, err
	}
	put, err := h.pass.put(r.Context(), o.Passing, o.Bucket, o.Key, data)
	if err != nil {
		return nil, err
	}
	sent, err := h.pass.send(r.Context(), o.Passing, request{host: o.To, path: o.Path, bucket: o.Bucket, key: o.Key, data: data, held: o.Held})
	sent.Put = put
	return sent, err
}

func (h *handler) made(o step.Order) ([]byte, error) {
	of := step.Order{Content: o.Content, Size: o.Size, Seed: o.Seed}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.data == nil || h.last != of {
		h.data = nil // two of the largest need not be held at a time
		data, err := content.Make(o.Content, o.Size, o.Seed)
		if err != nil {
			return nil, err
		}
		h.last, h.data = of, data
	}
	return h.data, nil
}

// receive has all of its input before it looks at it.
func (h *handler) receive(r *http.Request, header http.Header) (any, error) {
	began := time.Now()
	in, err := h.input.Read(r)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	read := time.Now()
	got := step.Received{Bytes: len(in.Data), SHA256: digest(in.Data), Done: time.Now()}
	step.SetTiming(header, read.Sub(began), string(in.From), got.Done.Sub(read))
	return got, nil
}

// decode passes the parts of a video on. What it does itself is its execution: splitting,
// and putting the parts into the store.
func (h *handler) decode(r *http.Request, header http.Header) (any, error) {
	began := time.Now()
	in, err := h.input.Read(r)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	read, video := time.Now(), in.Data
	parts := content.Split(video, len(h.targets))
	if len(parts) == 0 {
		return nil, &input.Refusal{Status: http.StatusUnprocessableEntity, Message: "the input has no frame"}
	}
	got := step.Received{Bytes: len(video), SHA256: digest(video), Parts: make([]step.Sent, len(parts))}
	bucket, key := r.Header.Get(input.HeaderBucket), r.Header.Get(input.HeaderKey)
	name := func(n int) string { return fmt.Sprintf("%s.%d", key, n) }
	puts, ctx := errgroup.WithContext(r.Context())
	for n, part := range parts {
		puts.Go(func() (err error) {
			got.Parts[n].Put, err = h.pass.put(ctx, h.passing, bucket, name(n), part)
			return err
		})
	}
	if err := puts.Wait(); err != nil {
		return nil, err
	}
	worked := time.Now()
	sends, ctx := errgroup.WithContext(r.Context())
	for n, part := range parts {
		sends.Go(func() error {
			sent, err := h.pass.send(ctx, h.passing, request{host: h.targets[n], path: "/", bucket: bucket, key: name(n), data: part, held: h.held})
			sent.Put, got.Parts[n] = got.Parts[n].Put, sent
			return err
		})
	}
	if err := sends.Wait(); err != nil {
		return nil, err
	}
	got.Done = time.Now()
	step.SetTiming(header, read.Sub(began), string(in.From), worked.Sub(read))
	return got, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// fail answers with an error. Only what is the caller's matter is told; the log has all.
func fail(w http.ResponseWriter, err error) {
	status, message := http.StatusInternalServerError, "internal error"
	if refusal := new(input.Refusal); errors.As(err, &refusal) {
		status, message = refusal.Status, refusal.Message
	}
	slog.Error("request failed", "status", status, "error", err)
	write(w, status, map[string]string{"error": message})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The caller is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(body)
}
