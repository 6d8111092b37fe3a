package sandboxes

import (
	"context"
	"io"
	"net/netip"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Endpoint is where an instance takes requests.
type Endpoint struct {
	Address netip.AddrPort
	// MeshSNI is the name of an instance that takes requests over the mesh's mutual TLS
	// only; empty: plain HTTP.
	MeshSNI string
}

// Deliveries hear which requests the node's instances work on.
type Deliveries interface {
	// Begin says that the instance gets the request, which is over when end is called:
	// before its input is let go of.
	Begin(instance string, d Delivery) (end func())
}

// JobInput stands for a request's id in the Delivery of a job, which has an input and no
// request, and is the name of its file. It is no id of a request.
const JobInput = "job"

// Delivery is a request that an instance works on.
type Delivery struct {
	Request string
	// Inputs are by their names. The one with the empty name may be the request's own body.
	Inputs map[string]Input
	// Depth is how many calls of functions by functions led to the request.
	Depth int
	// Traceparent is what the function's own requests continue (W3C trace context).
	Traceparent string
	// Attempt is set if the instance may get the request before its turn: until that has come, others see nothing of what it does.
	Attempt *attempt.Attempt
}

// Input is a request's input as it arrives; see objects.Input.
type Input interface {
	Object(ctx context.Context) (source.Object, error)
	Wait(ctx context.Context) error
	NewReader(ctx context.Context) (io.ReadCloser, error)
}
