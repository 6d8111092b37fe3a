// Package filterapi is the contract between the control plane and the filters: the
// versioned plugin configuration and the names of the headers that a filter reads
// and sets. It knows neither Envoy nor Kubernetes.
package filterapi

import (
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Version is the configuration's version. A filter refuses any other.
const Version = "v1"

// HeaderPrefix begins the names of all headers of the project's own.
const HeaderPrefix = reference.OwnHeaders

// Headers on the way from the gateway to a node's daemon. The gateway strips them
// from what clients send, so their values are the gateway's own.
const (
	// HeaderRequest identifies one request: 32 lower-case hexadecimal digits, made
	// by the filter. The daemon also sets it on answers.
	HeaderRequest = "x-headstart-request"
	// HeaderFunction is the function's namespace/name, set by the gateway's route or, in a
	// mesh, by the filter.
	HeaderFunction = "x-headstart-function"
	// HeaderKey is the function's key, which only the daemon's own endpoint in a mesh's cluster of that
	// function has (shim/gatekey). A gateway sets it and HeaderFunction after all routes.
	HeaderKey = "x-headstart-key"
	// HeaderInput is the resolved input reference, for example s3://videos/cam1.mjpeg.
	// It is no URL to be decoded: the key is all that follows the bucket's slash.
	HeaderInput = "x-headstart-input"
	// HeaderInputs are the references of the inputs with names, as reference.ParseNamed reads
	// them: mask=s3://masks/cam1.png&subtitles=s3://subtitles/cam1. Each is encoded.
	HeaderInputs = "x-headstart-inputs"
	// HeaderEndpoint is the endpoint of the request's cluster that is to have the request:
	// Config.IngressEndpoint, if the request has an input. The cluster's load balancing
	// policy (override_host) reads it.
	HeaderEndpoint = "x-headstart-endpoint"
	// AnyEndpoint is a value of HeaderEndpoint that is no endpoint: the request names no input,
	// and any instance may have it.
	AnyEndpoint = "any"
	// HeaderSession is the endpoint, in base64 (RFC 4648), that is to have the request if it is
	// well: Envoy's stateful_session filter reads it, where clusters may eject endpoints.
	HeaderSession = "x-headstart-session"
	// HeaderInputFile tells the function where its input lies as a file.
	HeaderInputFile = "x-headstart-input-file"
	// HeaderReason and HeaderField are the title and the field of a Problem that a
	// filter answered with, on the way to RefusalPath.
	HeaderReason = "x-headstart-reason"
	HeaderField  = "x-headstart-field"
)

// Headers between daemons, which no gateway sets. HeaderUndelivered, HeaderDepth and HeaderCaller are
// seen outside of them, too.
const (
	// HeaderInstance names the target of a request that is handed over, and HeaderProtocol what
	// the function speaks.
	HeaderInstance = "x-headstart-instance"
	HeaderProtocol = "x-headstart-protocol"
	// HeaderWaited is for how many milliseconds a request has waited when it is handed over.
	HeaderWaited = "x-headstart-waited"
	// HeaderDepth is how many calls of functions by functions led to the request.
	HeaderDepth = "x-headstart-depth"
	// HeaderUndelivered is on an answer to a daemon that handed over a request, which nobody
	// got.
	HeaderUndelivered = "x-headstart-undelivered"
	// HeaderCapability is the control plane's signature on the binding of a request that is handed
	// over.
	HeaderCapability = "x-headstart-capability"
	// HeaderCaller is namespace/name of the function that has made the request by its socket.
	HeaderCaller = "x-headstart-caller"
	// HeaderProgress asks and tells how far a request is that was handed over.
	HeaderProgress = "x-headstart-progress"
)

// HintPath is where a filter posts the hint of a request: its headers are the hint,
// it has no body.
const HintPath = "/v1/hint"

// RefusalPath is where a filter posts that it refused a request, for the operator: the
// daemon never sees that request. HeaderFunction, HeaderReason and HeaderField are all
// that is told, nothing of it the client's words. A field is shorter than
// reference.MaxTemplateBytes, as the template has all the names that are in it.
const RefusalPath = "/v1/refusal"

// ObservationPath is where a filter posts what it would do with a request of a function that is only observed: the headers are
// those of a hint, those of a refusal, or, if the request names no input, HeaderFunction alone. Nothing follows from it, whatever
// else the daemon knows of the function.
const ObservationPath = "/v1/observation"

// ExpectationsPath is where the route filter of each of a gateway's workers, and of Envoy's main thread, asks the
// node's daemon what to expect: a RouteConfig. HeaderKnown is the version that the worker has, HeaderVersion that
// of the answer (RFC 9110, sections 13.1.2 and 8.8.3). The daemon answers at once if the two differ, else when they do, and
// after ExpectationsHeld that they do not (304).
const (
	ExpectationsPath = "/v1/expectations"
	HeaderKnown      = "if-none-match"
	HeaderVersion    = "etag"
	ExpectationsHeld = 20 * time.Second
)

// MetadataNamespace is where gateways' filters find what Headstart says of a function: in the metadata
// (filter_metadata) of its Envoy cluster in a mesh, and of its routes elsewhere. Under MetadataPrefetch
// is a Function, as its Marshal writes it, unless the function's requests name no input. In a mesh the clusters of all functions
// that are not only observed have their names under MetadataFunction, and no others have.
const (
	MetadataNamespace = "headstart"
	MetadataPrefetch  = "prefetch"
	MetadataFunction  = "function"
)

// Config is the filters' plugin configuration, as JSON. Functions are not in it: it is as
// large with ten thousand of them as with none, and no function's change starts the filter again.
type Config struct {
	Version string `json:"version"`
	// HintCluster is the Envoy cluster of the node's daemon that takes hints, and says what to expect.
	HintCluster string `json:"hintCluster"`
	// IngressEndpoint is the unix socket of the node's daemon where routes are not
	// Headstart's to write, in a mesh: each function's cluster has it as an endpoint. The
	// filter then says itself which function a request is for (HeaderFunction), and whether it
	// goes there (HeaderEndpoint), as all do of which no filter says. Empty: routes do both.
	IngressEndpoint string `json:"ingressEndpoint,omitempty"`
}

// Function is what the prefetch filter has to know of one function.
type Function struct {
	// Name is namespace/name.
	Name string `json:"name"`
	// Input is the template of the input reference, as reference.ParseTemplate reads it, for example
	// s3://{header.x-bucket}/{header.x-key}. Empty: the function's requests have no unnamed input.
	Input string `json:"input,omitempty"`
	// Inputs are the templates of further inputs, by their names.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Observed are the templates of a function whose inputs the filter only names to the daemon, by the inputs' names:
	// its requests stay as they are. A function has these or the ones above, so a filter that knows only those does nothing.
	Observed map[string]string `json:"observed,omitempty"`
}

// Templates are those of all inputs, observed ones included.
func (f *Function) Templates() reference.Inputs {
	if f.IsObserved() {
		return f.Observed
	}
	return reference.NewInputs(f.Input, f.Inputs)
}

// IsObserved tells whether the filter only names the function's inputs.
func (f *Function) IsObserved() bool { return len(f.Observed) > 0 }
