package ingress

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/propagation"
)

// begin says that the instance works on the request, until end is called.
func (in *Ingress) begin(ctx context.Context, p *parked, instance string) (end func()) {
	if in.deliveries == nil {
		return func() {}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	d := Delivery{Request: p.id, Depth: p.depth, Traceparent: carrier["traceparent"]}
	if p.input != nil { // or the interface would hold a nil pointer
		d.Input = p.input
	}
	return in.deliveries.Begin(instance, d)
}

// depth is what a request says of the calls that led to it. Only daemons say it, which
// bound it themselves; anything else is none.
func depth(h http.Header) int {
	n, err := strconv.Atoi(h.Get(headerDepth))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// setDepth sets it anew. A request that no function has made says nothing.
func setDepth(h http.Header, depth int) {
	h.Del(headerDepth)
	if depth > 0 {
		h.Set(headerDepth, strconv.Itoa(depth))
	}
}
