// Package platform is the port to whatever runs the functions: what functions exist,
// where their instances are being placed, which are ready, and "make one more".
package platform

import (
	"context"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// Platform runs functions. Its adapters live one level below and pass one
// conformance suite.
type Platform interface {
	// State returns functions and instances as they are now. The caller may keep
	// the slices but must not change them.
	State() State
	// Watch returns a channel that holds a token after each change since the last
	// receive. It closes when ctx ends.
	Watch(ctx context.Context) <-chan struct{}
	// Activate returns the instance that a request is bound to as soon as its node is
	// known, long before it is ready: the function's own if it has one, else a new
	// one. A refusal is a *Refusal.
	Activate(ctx context.Context, r Request) (Instance, error)
	// ScaleToZero withdraws and then stops the function's instances. It returns when
	// they are withdrawn in State: none is Starting or Ready.
	ScaleToZero(ctx context.Context, function string) error
}

// State is what a platform knows at one moment.
type State struct {
	Functions []Function
	Instances []Instance
}

// Function is one function as deployed.
type Function struct {
	// Name is namespace/name.
	Name string
	// Hosts are the authorities it answers to, lower case, without port.
	Hosts []string
	// Generation grows with each change of the manifest. A function that is deleted and
	// deployed again goes on from there.
	Generation int64
	// Deleting: it takes no new requests, and is only here until its last instances have
	// answered theirs.
	Deleting bool

	Image          string
	Command        []string
	Args           []string
	Env            map[string]string
	Port           int32
	ProbePath      string // HTTP readiness probe; empty: a TCP connection is enough
	RequestTimeout time.Duration
	CPULimitMillis int64  // thousandths of a core; 0: no limit
	MemoryLimit    int64  // bytes; 0: no limit
	Node           string // the only node it may run on; empty: any

	Policy policy.Policy
}

// Phase is how far an instance has come.
type Phase string

// The phases of an instance, in order.
const (
	Starting Phase = "Starting" // bound to a node
	Ready    Phase = "Ready"
	Stopping Phase = "Stopping" // withdrawn from routing, may still answer
)

// Instance is one running copy of a function, which State has too.
type Instance struct {
	ID       string
	Function string
	Node     string
	Phase    Phase
	// Address is ip:port, known once ready.
	Address string
}

// Request is what an activation is for.
type Request struct {
	ID       string
	Function string
	// Node is where the request is parked: the gateway's own node.
	Node string
}

// Refusal says why a request gets no instance, in words for the function's owner.
type Refusal struct {
	Status  int    // HTTP status
	Reason  string // one CamelCase word
	Message string
	Field   string // the manifest's field to mend, if one is at fault
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }
