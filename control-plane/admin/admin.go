// Package admin is the control plane's door for its operator: HTTP with JSON on a unix
// socket of mode 0600 or, on Kubernetes, on a loopback port of its pod, which is reached
// by port forwarding. The CLI is its client.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// manifestMost is the largest stream of manifests in bytes: what the parser takes.
const manifestMost = 16 << 20

// Applied is what applying did to one function.
type Applied struct {
	Function string          `json:"function"`
	Change   platform.Change `json:"change"`
	// Warnings are what will not work as the manifest has it.
	Warnings []string `json:"warnings,omitempty"`
}

// Status is all that `headstart status` shows.
type Status struct {
	Version string `json:"version"`
	// Platform is Kubernetes, or empty for the embedded one.
	Platform string `json:"platform,omitempty"`
	// InCharge: it is this control plane, of several, that scales to zero and writes the
	// mesh's configuration.
	InCharge bool `json:"inCharge,omitempty"`
	// ControlPlanes are all that were asked, in the answer of a Client of several.
	ControlPlanes []ControlPlane `json:"controlPlanes,omitempty"`
	Nodes         []Node         `json:"nodes"`
	Functions     []Function     `json:"functions"`
	// Parts are the embedded platform's processes.
	Parts []Part `json:"parts,omitempty"`
	// Routing is what of the weights cannot be used, and what gateways have refused.
	Routing []routing.Problem `json:"routing,omitempty"`
	// Mesh is how far the mesh's configuration has come, on Kubernetes.
	Mesh *Mesh `json:"mesh,omitempty"`
}

// Kubernetes is Status.Platform of a cluster.
const Kubernetes = "kubernetes"

// Mesh is what the control plane has written for the gateways.
type Mesh struct {
	// Installed: the cluster knows Istio's objects.
	Installed bool `json:"installed"`
	// Objects is the number of generated objects that are as they should be.
	Objects  int           `json:"objects"`
	Problems []MeshProblem `json:"problems,omitempty"`
}

// MeshProblem is one thing that could not be written, and is tried again.
type MeshProblem struct {
	Object  string `json:"object"` // kind namespace/name
	Cause   string `json:"cause"`  // one CamelCase word
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// Node is one node that is connected.
type Node struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Gateway is the URL of the node's Envoy, as reached from this machine; empty on
	// Kubernetes, where gateways are the mesh's.
	Gateway   string `json:"gateway"`
	Instances int    `json:"instances"`
	// Site is the digest of the members of the node's site, which share the objects that they hold; empty: it
	// shares none.
	Site string `json:"site,omitempty"`
	// Away are those of Status.ControlPlanes that it is not connected to.
	Away     []string      `json:"away,omitempty"`
	Problems []NodeProblem `json:"problems,omitempty"`
	// Cache is what the node keeps; nil: its daemon does not say.
	Cache *NodeCache `json:"cache,omitempty"`
	// NoKernelTLS and NoConnect say why its kernel does no TLS for connections, and why programs there get none by
	// connect; empty: nothing is known against it.
	NoKernelTLS string `json:"noKernelTLS,omitempty"`
	NoConnect   string `json:"noConnect,omitempty"`
	// Pools are the connections that wait on it.
	Pools []Pool `json:"pools,omitempty"`
}

// Pool is what waits of connections with a destination.
type Pool struct {
	Destination string `json:"destination"`
	// Held is how many there are, Wanted how many there would be without a limit, and Allowed how many there may be.
	Held      int              `json:"held"`
	Wanted    int              `json:"wanted"`
	Allowed   int              `json:"allowed"`
	Functions []PooledFunction `json:"functions,omitempty"`
}

// PooledFunction is what waits of them for a function.
type PooledFunction struct {
	Function string `json:"function"`
	Held     int    `json:"held"`
	Wanted   int    `json:"wanted"`
	// SetupSeconds is how long it takes to make one, and OldestSeconds how long the oldest has waited; 0: not known.
	SetupSeconds  float64 `json:"setupSeconds,omitempty"`
	OldestSeconds float64 `json:"oldestSeconds,omitempty"`
}

// NodeCache is what a node keeps, in bytes.
type NodeCache struct {
	// Bytes are of objects that no input uses, and Limit is what these and inputs may take together; 0: the node keeps
	// no objects.
	Bytes int64 `json:"bytes"`
	Limit int64 `json:"limit"`
	// Volumes are those of which it has a version.
	Volumes int `json:"volumes"`
	// Problems are in Node.Problems as well.
	Problems []string `json:"problems,omitempty"`
}

// NodeProblem is one thing that is wrong with a node.
type NodeProblem struct {
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// Function is one function with its instances and its recent past.
type Function struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
	Image string   `json:"image"`
	// Workflow is the version that its document has, if it is one. It has neither image nor instances then.
	Workflow string `json:"workflow,omitempty"`
	Input    string `json:"input,omitempty"`
	// Inputs are the templates of the inputs with names, by these.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Observed: its inputs are only named, and nothing is fetched.
	Observed bool `json:"observed,omitempty"`
	// Connections are the destinations that its pods' programs are connected to before they start.
	Connections []string `json:"connections,omitempty"`
	// Deleting: it takes no new requests, its instances answer those that they have.
	Deleting bool `json:"deleting,omitempty"`
	// Refused: its annotations are not valid, and it runs as if it had none. The events
	// say what to mend.
	Refused bool `json:"refused,omitempty"`
	// Workload is what has its pods, as kind and name: Deployment fire. Kubernetes only.
	Workload string `json:"workload,omitempty"`
	// Scaler is who scales the workload, as kind and name, Knative, or Headstart; empty
	// for nobody. Kubernetes only.
	Scaler    string     `json:"scaler,omitempty"`
	Instances []Instance `json:"instances"`
	// Endpoints are where its instances take requests while another autoscaler runs it
	// (Knative).
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"`
	Events    []event.Event    `json:"events"`
}

// Instance is one running copy.
type Instance struct {
	ID string `json:"id"`
	// Pod is its pod's name, in the function's namespace; empty outside Kubernetes.
	Pod     string         `json:"pod,omitempty"`
	Node    string         `json:"node"`
	Phase   platform.Phase `json:"phase"`
	Address netip.AddrPort `json:"address,omitzero"`
}

// JobOutcome is how a job ended.
type JobOutcome struct {
	Job      string `json:"job"`
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Reason is JobSucceeded, JobFailed, or why it did not run to its end.
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Field    string `json:"field,omitempty"`
	ExitCode int32  `json:"exitCode"`
	// Log is the runtime's words, if it could not start the sandbox.
	Log []string `json:"log,omitempty"`
	// Trace is the id of its trace.
	Trace string `json:"trace,omitempty"`
}

// What JobOutcome.Reason is of a job whose program ended with 0, and with another code.
const (
	Succeeded = "JobSucceeded"
	JobFailed = "JobFailed"
)

// Backend is what the operator may do. An error that is the operator's to mend is a
// *platform.Refusal.
type Backend interface {
	// Apply deploys the functions of a manifest, all or none.
	Apply(manifest io.Reader) ([]Applied, error)
	// Delete removes namespace/name.
	Delete(function string) error
	// RunJob runs the job of a manifest and returns when it is over; it ends with ctx.
	RunJob(ctx context.Context, manifest io.Reader) (JobOutcome, error)
	Status() Status
	// Weights says why the requests of namespace/name are spread as they are.
	Weights(function string) (routing.Explanation, bool)
	// Trace returns a trace by its id or by its request's, or else a trace.Absence.
	Trace(id string) (trace.Trace, error)
	// Traces lists the latest and the slowest, of one namespace unless that is empty.
	Traces(namespace string) trace.Listing
	// Cache does something with what nodes keep, and returns what each of them says. It ends with ctx.
	Cache(ctx context.Context, q CacheQuery) ([]CacheNode, error)
	// Logs writes what a function has logged until all is written, or ctx ends.
	Logs(ctx context.Context, o LogOptions, to func(LogLine) error) error
}

// Handler serves the operator's requests.
func Handler(b Backend) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/functions", func(w http.ResponseWriter, r *http.Request) {
		applied, err := b.Apply(http.MaxBytesReader(w, r.Body, manifestMost))
		answer(w, applied, err)
	})
	mux.HandleFunc("DELETE /v1/functions/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, b.Delete(r.PathValue("namespace")+"/"+r.PathValue("name")))
	})
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		outcome, err := b.RunJob(r.Context(), http.MaxBytesReader(w, r.Body, manifestMost))
		answer(w, outcome, err)
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, b.Status(), nil)
	})
	mux.HandleFunc("GET /v1/functions/{namespace}/{name}/weights", func(w http.ResponseWriter, r *http.Request) {
		e, ok := b.Weights(r.PathValue("namespace") + "/" + r.PathValue("name"))
		if !ok {
			answer(w, nil, &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function; `headstart status` lists them"})
			return
		}
		answer(w, e, nil)
	})
	mux.HandleFunc("GET /v1/traces/{id}", func(w http.ResponseWriter, r *http.Request) {
		t, err := b.Trace(r.PathValue("id"))
		var absent trace.Absence
		if errors.As(err, &absent) {
			err = &platform.Refusal{Status: http.StatusNotFound, Reason: absentReasons[absent], Message: absent.Error()}
		}
		answer(w, t, err)
	})
	mux.HandleFunc("GET /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		answer(w, b.Traces(r.URL.Query().Get("namespace")), nil)
	})
	mux.HandleFunc("POST /v1/cache", func(w http.ResponseWriter, r *http.Request) {
		var q CacheQuery
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, queryMost)).Decode(&q); err != nil {
			answer(w, nil, &platform.Refusal{Status: http.StatusBadRequest, Reason: "QueryMalformed", Message: err.Error()})
			return
		}
		nodes, err := b.Cache(r.Context(), q)
		answer(w, nodes, err)
	})
	mux.HandleFunc("GET /v1/functions/{namespace}/{name}/logs", func(w http.ResponseWriter, r *http.Request) {
		serveLogs(w, r, b)
	})
	return mux
}

// absentReasons are how scripts know a trace.Absence.
var absentReasons = map[trace.Absence]string{trace.Unknown: reasonTraceUnknown, trace.NotSampled: reasonTraceNotSampled, trace.NotKept: reasonTraceNotKept}

const (
	reasonTraceUnknown    = "TraceUnknown"
	reasonTraceNotSampled = "TraceNotSampled"
	reasonTraceNotKept    = "TraceNotKept"
)

// answer tells the operator everything: nobody else reads this socket.
func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		p := filterapi.Problem{Type: "about:blank", Title: "Internal", Status: http.StatusInternalServerError, Detail: err.Error()}
		var r *platform.Refusal
		if errors.As(err, &r) {
			p.Title, p.Status, p.Detail, p.Field = r.Reason, r.Status, r.Message, r.Field
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		v = p
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	// The operator has gone if this fails.
	_ = json.NewEncoder(w).Encode(v)
}
