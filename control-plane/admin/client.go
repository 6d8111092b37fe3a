package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// callTimeout bounds one call; all of them are answered from memory.
const callTimeout = 30 * time.Second

// Dial opens a connection to a control plane.
type Dial func(ctx context.Context) (net.Conn, error)

// Client calls one control plane, or those of a cluster.
type Client struct {
	http http.Client
	// explain says what to do about a call that got no answer.
	explain func(error) error
	// replicas are called instead, if there may be several.
	replicas *replicas
}

// NewClient returns a client of the control plane that serves a unix socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return newClient(dial, false, func(err error) error { return unreachable(socket, err) })
}

// NewClientOver returns a client of the control plane that dial connects to, at some cost:
// the connection is kept until Close. Errors of dial are the calls' as they are.
func NewClientOver(dial Dial) *Client {
	return newClient(dial, true, func(err error) error {
		var dialed *dialError
		if errors.As(err, &dialed) {
			return dialed.error
		}
		return fmt.Errorf("calling the control plane: %w", err)
	})
}

// Close lets go of the connection. Calls after it open another one.
func (c *Client) Close() {
	if c.replicas != nil {
		c.replicas.close()
		return
	}
	c.http.CloseIdleConnections()
}

func newClient(dial Dial, keep bool, explain func(error) error) *Client {
	over := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, &dialError{err}
		}
		return c, nil
	}
	return &Client{explain: explain, http: http.Client{Timeout: callTimeout,
		Transport: &http.Transport{DialContext: over, DisableKeepAlives: !keep}}}
}

// dialError tells an error of Dial from one of a connection.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// Apply deploys the functions of a manifest, all or none.
func (c *Client) Apply(ctx context.Context, manifest io.Reader) ([]Applied, error) {
	b, err := readManifest(manifest)
	if err != nil {
		return nil, err
	}
	var a []Applied
	err = c.call(ctx, http.MethodPut, "/v1/functions", bytes.NewReader(b), &a)
	return a, err
}

// readManifest reads it before the call, so that whoever types it has all the time in the world.
func readManifest(manifest io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(manifest, manifestMost+1))
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if len(b) > manifestMost {
		return nil, fmt.Errorf("the manifest is larger than %d MiB; apply it in parts", manifestMost>>20)
	}
	return b, nil
}

// RunJob runs the job of a manifest and returns when it is over. It takes as long as the job,
// which is stopped when ctx ends.
func (c *Client) RunJob(ctx context.Context, manifest io.Reader) (JobOutcome, error) {
	var o JobOutcome
	b, err := readManifest(manifest)
	if err != nil {
		return o, err
	}
	patient := Client{explain: c.explain, replicas: c.replicas, http: http.Client{Transport: c.http.Transport}}
	err = patient.call(ctx, http.MethodPost, "/v1/jobs", bytes.NewReader(b), &o)
	return o, err
}

// Delete removes namespace/name.
func (c *Client) Delete(ctx context.Context, function string) error {
	namespace, name, _ := strings.Cut(function, "/")
	return c.call(ctx, http.MethodDelete, "/v1/functions/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), nil, &struct{}{})
}

// Weights says why a function's requests are spread as they are.
func (c *Client) Weights(ctx context.Context, function string) (routing.Explanation, error) {
	namespace, name, _ := strings.Cut(function, "/")
	var e routing.Explanation
	err := c.call(ctx, http.MethodGet, "/v1/functions/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/weights", nil, &e)
	return e, err
}

// Status returns nodes, functions, instances and events.
func (c *Client) Status(ctx context.Context) (Status, error) {
	if c.replicas != nil {
		return c.replicas.status(ctx)
	}
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Trace returns a trace by its id or by its request's.
func (c *Client) Trace(ctx context.Context, id string) (trace.Trace, error) {
	if c.replicas != nil {
		return c.replicas.trace(ctx, id)
	}
	var t trace.Trace
	err := c.call(ctx, http.MethodGet, "/v1/traces/"+url.PathEscape(id), nil, &t)
	return t, err
}

// Traces lists the latest and the slowest traces, of one namespace unless that is empty.
func (c *Client) Traces(ctx context.Context, namespace string) (trace.Listing, error) {
	if c.replicas != nil {
		return c.replicas.traces(ctx, namespace)
	}
	var l trace.Listing
	err := c.call(ctx, http.MethodGet, "/v1/traces?namespace="+url.QueryEscape(namespace), nil, &l)
	return l, err
}

func (c *Client) call(ctx context.Context, method, path string, body io.Reader, into any) error {
	if c.replicas != nil {
		return c.replicas.first(ctx, method == http.MethodGet, func(one *Client) error { return one.call(ctx, method, path, body, into) })
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://headstart"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.noAnswer(err)
	}
	defer func() {
		_, _ = io.Copy(io.Discard, resp.Body) // a kept connection is one that has been read to its answer's end
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the control plane's answer: %w", err)
	}
	return nil
}

// refused is a control plane's problem, in its words.
type refused struct{ filterapi.Problem }

func (r *refused) Error() string { return r.Detail }

// refusal is the problem that an answer has.
func refusal(resp *http.Response) error {
	var p filterapi.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		return fmt.Errorf("the control plane answered %s", resp.Status)
	}
	return &refused{p}
}

// noAnswer returns the cause of a call's error.
func (c *Client) noAnswer(err error) error {
	var call *url.Error
	if errors.As(err, &call) { // it repeats method and address, which mean nothing here
		err = call.Err
	}
	return unanswered{c.explain(err)}
}

// unreachable says what to do about a socket that does not answer.
func unreachable(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no control plane serves %s: start the platform by `headstart up`, or say by --run-dir where it runs", socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s is its owner's only: run this as the user that runs `headstart up`, usually by sudo", socket)
	}
	return fmt.Errorf("calling the control plane at %s: %w", socket, err)
}
