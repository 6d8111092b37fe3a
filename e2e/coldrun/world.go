package coldrun

import (
	"context"
	"net/http"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// On is a test bed as World. Requests come to the gateway at the edge.
type On struct{ Bed *testbed.Bed }

// Request implements World.
func (w On) Request(ctx context.Context, method, function string) (*http.Request, error) {
	return w.Bed.Request(ctx, method, testbed.Edge, function, "/")
}

// Status implements World.
func (w On) Status(ctx context.Context) (admin.Status, error) { return w.Bed.Client().Status(ctx) }

// Trace implements World.
func (w On) Trace(ctx context.Context, id string) (trace.Trace, error) {
	return w.Bed.Client().Trace(ctx, id)
}
