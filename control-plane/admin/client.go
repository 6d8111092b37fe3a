package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// callTimeout bounds one call; all of them are answered from memory.
const callTimeout = 30 * time.Second

// Client calls the control plane behind a unix socket.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the control plane that serves socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: http.Client{Timeout: callTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Apply deploys the functions of a manifest, all or none.
func (c *Client) Apply(ctx context.Context, manifest io.Reader) ([]Applied, error) {
	var a []Applied
	err := c.call(ctx, http.MethodPut, "/v1/functions", manifest, &a)
	return a, err
}

// Delete removes namespace/name.
func (c *Client) Delete(ctx context.Context, function string) error {
	return c.call(ctx, http.MethodDelete, "/v1/functions/"+function, nil, &struct{}{})
}

// Status returns nodes, functions, instances and events.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Trace returns a trace by its id or by its request's.
func (c *Client) Trace(ctx context.Context, id string) (trace.Trace, error) {
	var t trace.Trace
	err := c.call(ctx, http.MethodGet, "/v1/traces/"+url.PathEscape(id), nil, &t)
	return t, err
}

func (c *Client) call(ctx context.Context, method, path string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://headstart"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("reaching the control plane at %s (is `headstart up` running? --run-dir says where): %w", c.socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var p filterapi.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			return fmt.Errorf("the control plane answered %s", resp.Status)
		}
		return fmt.Errorf("%s", p.Detail)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the control plane's answer: %w", err)
	}
	return nil
}
