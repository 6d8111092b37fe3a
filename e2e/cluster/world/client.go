package world

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Client sends requests through Istio's gateway and asks the control plane about them, by
// connections that are made once. It is a coldrun.World.
type Client struct {
	gateway netip.AddrPort
	admin   *admin.Client
}

// Client returns one. The caller closes it.
func (w *World) Client(ctx context.Context) (*Client, error) {
	gateway, err := w.Gateway(ctx)
	if err != nil {
		return nil, err
	}
	door, err := w.Admin()
	if err != nil {
		return nil, err
	}
	return &Client{gateway: gateway, admin: door}, nil
}

// Request returns a request to a function.
func (c *Client) Request(ctx context.Context, method, function string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.gateway.String()+"/", nil)
	if err == nil {
		r.Host = Function{Name: function}.Host()
	}
	return r, err
}

// Status is what the control plane knows.
func (c *Client) Status(ctx context.Context) (admin.Status, error) { return c.admin.Status(ctx) }

// Trace is a request's.
func (c *Client) Trace(ctx context.Context, id string) (trace.Trace, error) {
	return c.admin.Trace(ctx, id)
}

// Close lets go of the connections.
func (c *Client) Close() { c.admin.Close() }

// WithInput are the annotations of a function that has its input from the store, and is
// stopped after the idle window.
func WithInput(idle string) map[string]string {
	return map[string]string{"headstart.dev/scale-to-zero": idle, "headstart.dev/input": testbed.Input, "headstart.dev/store": StoreName}
}
