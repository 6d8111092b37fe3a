// Package platform is the port to whatever runs the functions: what functions exist,
// where their instances are being placed, which are ready, and "make one more".
package platform

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
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
	// they are withdrawn in State: none is Starting or Ready. A request that comes before
	// they are stopped may take them back.
	ScaleToZero(ctx context.Context, function string) error
}

// State is what a platform knows at one moment.
type State struct {
	Functions []Function
	Instances []Instance
	// Endpoints are where the functions take hot requests that have no Instances here,
	// because another autoscaler runs them (Knative).
	Endpoints []Endpoint
}

// Hot are the endpoints that take hot requests, of all autoscalers. Instances that take one request at a time are none: daemons
// deliver to them.
func (s State) Hot() iter.Seq[Endpoint] {
	one := map[string]bool{}
	for _, f := range s.Functions {
		one[f.Name] = f.OneAtATime
	}
	return func(yield func(Endpoint) bool) {
		for _, in := range s.Instances {
			hot := in.Phase == Ready && in.Address.IsValid() && !one[in.Function]
			if hot && !yield(Endpoint{
				Function: in.Function, Address: in.Address, Node: in.Node, MeshTLS: in.MeshSNI != "",
			}) {
				return
			}
		}
		for _, e := range s.Endpoints {
			if !yield(e) {
				return
			}
		}
	}
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
	// Withdrawn: it is no function any more, and only here for the requests of gateways that have
	// not heard of that. Those go to its ready instances; nothing is started for them.
	Withdrawn bool

	Image     string
	Command   []string
	Args      []string
	Env       map[string]string
	Port      int32
	ProbePath string // HTTP readiness probe; empty: a TCP connection is enough
	// PlatformReadiness: only the platform can tell when an instance is ready; nobody
	// else probes it.
	PlatformReadiness bool
	RequestTimeout    time.Duration
	CPULimitMillis    int64  // thousandths of a core; 0: no limit
	MemoryLimit       int64  // bytes; 0: no limit
	Node              string // the only node it may run on; empty: any

	// Service and ServicePort are what a mesh's registry knows the function's endpoints
	// by: the name of a Kubernetes Service, fully qualified, and the number of the port
	// that serves HTTP. Empty and 0 outside Kubernetes.
	Service     string
	ServicePort int32
	// HTTP2: its port says that it speaks HTTP/2, without TLS.
	HTTP2 bool
	// Revision is the Knative revision that gets the function's requests; empty: it is
	// no function of Knative's.
	Revision string

	// Template is the digest of what its instances are made of, where it runs ahead and that is not said here.
	Template string `json:",omitempty"`
	// OneAtATime: an instance takes one request at a time. MaxInstances is how many there may be then; 0: one.
	OneAtATime   bool  `json:",omitempty"`
	MaxInstances int32 `json:",omitempty"`

	// Workflow is set if it has no instances, and nodes answer its requests by calling other functions: a nodeapi.Workflow, in
	// its wire format. No image, and no container, is said then.
	Workflow []byte `json:",omitempty"`

	Policy policy.Policy
}

// Runs is the workflow that nodes run for the function, nil if it has instances. One that cannot be read is one that no node
// runs, and each says so.
func (f Function) Runs() *nodeapi.Workflow {
	if f.Workflow == nil {
		return nil
	}
	w := &nodeapi.Workflow{}
	if err := proto.Unmarshal(f.Workflow, w); err != nil {
		return &nodeapi.Workflow{}
	}
	return w
}

// AssignmentName is the name of the function's endpoints in a mesh, which its cluster asks for
// (eds_cluster_config.service_name). A function without a service has no cluster in the mesh, and no
// such name.
func (f Function) AssignmentName() string {
	if f.ServicePort == 0 {
		return ""
	}
	return f.Name + ":" + strconv.Itoa(int(f.ServicePort))
}

// AssignedTo is the function whose AssignmentName it is, or outside a mesh whose name; empty if it is
// none.
func AssignedTo(name string) string {
	function, port, inMesh := strings.Cut(name, ":")
	if _, err := strconv.ParseUint(port, 10, 16); inMesh && err != nil || !strings.Contains(function, "/") {
		return ""
	}
	return function
}

// Job is a container that runs once, and takes no requests.
type Job struct {
	// Name is namespace/name.
	Name string

	Image          string
	Command        []string
	Args           []string
	Env            map[string]string
	CPULimitMillis int64         // thousandths of a core; 0: no limit
	MemoryLimit    int64         // bytes; 0: no limit
	Node           string        // the only node it may run on; empty: any
	Timeout        time.Duration // it is ended after that; 0: never

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

// Instance is one running copy of a function, which State has too. On Kubernetes it is a
// pod, and one pod may be an instance of several functions.
type Instance struct {
	ID       string
	Function string
	Node     string
	Phase    Phase
	// Address is where it takes requests, known once it is Ready; the zero AddrPort: not known.
	// On Kubernetes it is known before, as soon as the pod has an IP.
	Address netip.AddrPort
	// MeshSNI is the server name by which the instance's sidecar takes requests over the
	// mesh's mutual TLS, and no others; empty: it takes plain HTTP.
	MeshSNI string
	// Relay is where a request goes at once when another autoscaler starts the function.
	// Then there is neither ID nor Node, and State does not have this instance.
	Relay *Relay
}

// Relay takes requests for a function, also while it has no instance.
type Relay struct {
	Address string            // host:port
	Headers map[string]string // by which the relay knows the function
}

// Endpoint is where a function takes requests.
type Endpoint struct {
	Function string
	Address  netip.AddrPort
	Node     string // empty: unknown
	// MeshTLS: it takes requests over the mesh's mutual TLS.
	MeshTLS bool
	// Relay: it is the other autoscaler itself, which passes requests on.
	Relay bool
}

// Request is what an activation is for.
type Request struct {
	ID       string
	Function string
	// Node is where the request is parked: the gateway's own node.
	Node string
	// Caller is the function that calls, as its node says; empty: none, or no function.
	Caller string
	// More: all instances of the function that the node has are at work.
	More bool
}

// Admits tells whether functions of a namespace may call it.
func (f Function) Admits(namespace string) bool {
	own, _, _ := strings.Cut(f.Name, "/")
	return namespace == own || slices.Contains(f.Policy.CallerNamespaces(), namespace)
}

// RefusesCaller returns why another function may not call it, nil if it may, or there is none.
func (f Function) RefusesCaller(caller string) error {
	namespace, _, _ := strings.Cut(caller, "/")
	if caller == "" || f.Admits(namespace) {
		return nil
	}
	return &Refusal{Status: http.StatusForbidden, Reason: "CallNotAllowed", Field: policy.KeyCallers,
		Message: fmt.Sprintf("function %s does not let functions of namespace %s call it; its annotation %s may name that",
			f.Name, namespace, policy.KeyCallers)}
}

// Refusal says why a request gets no instance, in words for the function's owner.
type Refusal struct {
	Status  int    // HTTP status
	Reason  string // one CamelCase word
	Message string
	Field   string // the manifest's field to mend, if one is at fault
	Passing bool   // it may be otherwise in a moment: a daemon may be replaced
}

// OldDaemon refuses an instance for a workflow, which has none.
func OldDaemon(node string) *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Reason: "WorkflowUnknown",
		Message: "the daemon of node " + node + " is older than the control plane, and runs no workflows; update it"}
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }
