package ingress

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// begin says that the instance works on the request, until end is called.
func (in *Ingress) begin(ctx context.Context, p *parked, instance string) (end func()) {
	if in.config.Deliveries == nil {
		return func() {}
	}
	d := sandboxes.Delivery{Request: p.id, Depth: p.depth, Traceparent: tracing.Traceparent(ctx), Attempt: p.attempt}
	d.Inputs = map[string]sandboxes.Input{}
	if p.received != nil {
		d.Inputs[""] = bufferedBody{p.received}
	}
	for _, one := range p.stored {
		if one.input != nil { // or the interface would hold a nil pointer
			d.Inputs[one.name] = one.input
		}
	}
	return in.config.Deliveries.Begin(instance, d)
}

// depth is what a request says of the calls that led to it. Only daemons say it, which
// bound it themselves; anything else is none.
func depth(h http.Header) int {
	n, err := strconv.Atoi(h.Get(filterapi.HeaderDepth))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// setDepth sets it anew. A request that no function has made says nothing.
func setDepth(h http.Header, depth int) {
	h.Del(filterapi.HeaderDepth)
	if depth > 0 {
		h.Set(filterapi.HeaderDepth, strconv.Itoa(depth))
	}
}

// bufferedBody is a request's own body as an input of which the buffer may have a part only:
// that is never taken for all of it.
type bufferedBody struct{ *objects.Input }

// Object implements Input. Once the body is whole, its size is known.
func (b bufferedBody) Object(ctx context.Context) (source.Object, error) {
	object, err := b.Input.Object(ctx)
	if err == nil && object.Size < 0 && !b.Ended().IsZero() && b.Wait(ctx) == nil { // which waits for nothing
		object.Size = b.Received()
	}
	return object, err
}

// Wait implements Input.
func (b bufferedBody) Wait(ctx context.Context) error {
	if err := b.Input.Wait(ctx); err != nil {
		return err
	}
	return b.missing()
}

// NewReader implements Input.
func (b bufferedBody) NewReader(ctx context.Context) (io.ReadCloser, error) {
	r, err := b.Input.NewReader(ctx)
	if err != nil {
		return nil, err
	}
	return &bodyReader{ReadCloser: r, of: b}, nil
}

// missing is an error if the buffer has been too full for all of the body. It waits for the
// input's end.
func (b bufferedBody) missing() error {
	if _, spilled := b.Rest(); spilled {
		return problem.New(
			http.StatusInsufficientStorage, problem.ReasonBufferFull, "",
			"the node's input buffer had no room for all of the request's body; read it from the request itself",
		)
	}
	return nil
}

type bodyReader struct {
	io.ReadCloser
	of bufferedBody
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != io.EOF {
		return n, err
	}
	// The entry is complete a moment before the input has ended.
	_ = r.of.Input.Wait(context.Background())
	if failed := r.of.missing(); failed != nil {
		return n, failed
	}
	return n, io.EOF
}

// Seek implements io.Seeker.
func (r *bodyReader) Seek(offset int64, whence int) (int64, error) {
	return r.ReadCloser.(io.Seeker).Seek(offset, whence)
}
