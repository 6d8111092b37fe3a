// Package ingress is where requests for cold functions wait on a node: it parks them,
// has an instance and their input brought, and delivers them.
//
// The three ways in are the gateway's requests (Gateway), the filters' hints and
// refusals (Hints), and requests that another node's daemon hands over (Peers).
package ingress

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/observed"
	"github.com/headstart-mesh/headstart/shim/proxy"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/slots"
	"github.com/headstart-mesh/headstart/shim/staging"
	"github.com/headstart-mesh/headstart/shim/workflow"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/ingress")

// ControlPlane is what the ingress asks of the control plane.
type ControlPlane interface {
	// Activate returns where the request is to go, or a *problem.Problem.
	Activate(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error)
	// Hold tells that delta more requests of the function are in the node's hands.
	Hold(function string, delta int32)
	// Event tells the operator something.
	Event(*nodeapi.Event)
}

// Instances are the node's own.
type Instances interface {
	// Ready waits for the instance and returns where it is, or a *problem.Problem. With
	// problem.ReasonInstanceGone and ReasonInstanceStopped, and with any problem.TooLate,
	// another one can be had.
	Ready(ctx context.Context, id string) (sandboxes.Endpoint, error)
	// Inputs is where the instance sees its inputs, nil if it sees none. known is false
	// when the instance is gone.
	Inputs(id string) (dir *staging.Dir, known bool)
	slots.Instances
	// Replace stops an instance, in whose place there may be another one.
	Replace(id string)
}

// Mesh is the service mesh that instances may be in.
type Mesh interface {
	// Transport sends requests for http://ip:port over the mesh's mutual TLS, by HTTP/2 or
	// else HTTP/1.1, to the workload of that name.
	Transport(sni string, h2 bool) http.RoundTripper
}

// Workflows run on the node.
type Workflows interface {
	// Serve answers a request. Its error is why there was no run.
	Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, q workflow.Request) error
}

// Config is what an ingress is made of.
type Config struct {
	// Node is the node's name.
	Node         string
	Functions    *Functions
	ControlPlane ControlPlane
	Instances    Instances
	Objects      *objects.Cache
	// Peers sends requests to other nodes' daemons.
	Peers http.RoundTripper
	// Mesh may be nil: no instance is in one.
	Mesh Mesh
	// Deliveries may be nil: nobody wants to know.
	Deliveries sandboxes.Deliveries
	// Foresee hears of requests of functions that learn what their programs read, before their instance is ready; nil:
	// nobody wants to know.
	Foresee func(function, instance, target string, header http.Header) (end func(worked bool))
	// Observed notes what observed functions' requests name, as far as Allowed lets them read it.
	Observed *observed.Notes
	Allowed  func(function, store string, ref source.Reference) error
	// Workflows answer the requests of functions that are workflows; nil: they are refused.
	Workflows Workflows
	// Busy is which part of the node's processors is taken, 0 to 1; nil: nobody knows.
	Busy    func() float64
	Metrics *Metrics
	Log     *slog.Logger
}

// Ingress parks and delivers requests.
type Ingress struct {
	config Config
	hints  *hints
	held   *held
	crowd  crowd
	tally  *tally
	// capabilities are of requests that other nodes hand over; announced are those that come ahead.
	capabilities capability.Verifier
	announced    announced
	// By what the other side speaks.
	functionSide, relaySide proxy.Transports
	// kept is for functions of which an instance takes one request at a time.
	kept     *proxy.Kept
	pause    time.Duration // the first between two placements of a request
	prepared prepared
	slots    *slots.Slots
	beside   beside

	stopping context.Context
	stop     context.CancelFunc
}

// New returns the ingress of a node.
func New(c Config) *Ingress {
	stopping, stop := context.WithCancel(context.Background())
	return &Ingress{config: c, hints: newHints(), held: newHeld(), tally: newTally(time.Now()),
		functionSide: proxy.NewTransports(functionDialTimeout), relaySide: proxy.NewTransports(relayDialTimeout), kept: proxy.NewKept(functionDialTimeout, proxy.Settles),
		pause: pauseFirst, prepared: prepared{at: map[asked]time.Time{}}, slots: slots.New(c.Instances), stopping: stopping, stop: stop}
}

// Close lets go of the hints that no request followed, and answers the requests that
// wait, and those that still come, with the problem DaemonStopping. Those that a
// function or another node has go on, but for those before their turn.
func (in *Ingress) Close() {
	in.beside.close(in.stop)
	in.hints.close()
	in.beside.running.Wait()
	in.kept.Close()
}

// Signals is what there was since the call before of requests that the node's instances got
// by way of the daemon. Those that gateways send to instances themselves it does not see.
func (in *Ingress) Signals(now time.Time) *nodeapi.Signals {
	return in.tally.report(now, func(instance string) bool {
		_, known := in.config.Instances.Inputs(instance)
		return known
	})
}

// Gateway serves the requests that the node's own Envoy sends, and the daemon itself: nobody else can
// have set their headers.
func (in *Ingress) Gateway() http.Handler {
	own := func(r *http.Request, p *parked) error {
		p.caller = r.Header.Get(filterapi.HeaderCaller)
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.serve(w, r, entrance{admit: own}, func(ctx context.Context, r *http.Request, p *parked) error {
			return in.place(ctx, w, r, p)
		})
	})
}

// Peers serves the requests that other nodes' daemons hand over.
func (in *Ingress) Peers() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		instance := r.Header.Get(filterapi.HeaderInstance)
		in.serve(w, r, entrance{admit: in.checkBound}, func(ctx context.Context, r *http.Request, p *parked) error {
			trace.SpanFromContext(ctx).SetAttributes(tracing.Instance.String(instance))
			p.deadline = p.deadline.Add(-waitedElsewhere(r.Header))
			p.tell = progressTo(w, r)
			p.tell(progressParked)
			return in.deliver(ctx, w, r, p, instance)
		})
	})
}
