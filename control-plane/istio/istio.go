// Package istio puts functions into the configuration of an Istio mesh. For each
// function it keeps one EnvoyFilter, which gives the function's cluster in the gateways
// our endpoints and what the prefetch filter has to know of it, and in the object that brings
// that filter it keeps the filter's configuration. What of it is pure is in function.go; Writer does the rest.
package istio

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Names that manifests/istio, the chart and the gateways' node metadata share with the
// control plane.
const (
	// FieldManager owns our fields in the API server.
	FieldManager = "headstart"
	// DefaultRootNamespace is Istio's, if the mesh does not say otherwise.
	DefaultRootNamespace = "istio-system"
	// PrefetchName is the TrafficExtension, or the WasmPlugin, that brings the filter.
	PrefetchName = "headstart-prefetch"
	// GatewayCluster is the static cluster of the node's daemon that serves endpoints.
	GatewayCluster = "headstart-gateway"
	// IngressSocket is where the node's daemon takes gateways' requests: an endpoint of each
	// function's cluster. manifests/istio/gateways.yaml has it, too.
	IngressSocket = "/run/headstart/gateway/ingress.sock"
	// MetadataKey and MetadataValue are in the node metadata of gateways that have
	// Headstart's sockets mounted, by ISTIO_META_HEADSTART in their environment. Only
	// these are touched.
	MetadataKey   = "HEADSTART"
	MetadataValue = "true"
	// NodeSocket is the value in an endpoint's metadata envoy.transport_socket_match,
	// under NodeSocketKey, that keeps its connections plain: the node's own daemon.
	NodeSocketKey = "headstart"
	NodeSocket    = "node"
)

// Labels of the objects that are ours alone. Objects without them are never changed or
// deleted, but for the one field in PrefetchName.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelComponent = "app.kubernetes.io/component"
	labelRevision  = "istio.io/rev"

	managedBy = "headstart"
	component = "function"
)

// namePrefix begins the names of generated objects. Dots separate the parts, since no
// namespace and no Service has one in its name.
const namePrefix = managedBy + "."

// Selector finds the objects that the control plane has generated.
const Selector = labelManagedBy + "=" + managedBy + "," + labelComponent + "=" + component

// Kind is a kind of Istio's objects.
type Kind struct {
	GVK      schema.GroupVersionKind
	Resource string // lower-case plural
}

// GVR is what the API server knows the kind's objects by.
func (k Kind) GVR() schema.GroupVersionResource { return k.GVK.GroupVersion().WithResource(k.Resource) }

func (k Kind) String() string { return k.GVK.Kind }

// The kinds that the control plane writes.
var (
	EnvoyFilter = Kind{
		GVK:      schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1alpha3", Kind: "EnvoyFilter"},
		Resource: "envoyfilters",
	}
	TrafficExtension = Kind{
		GVK:      schema.GroupVersionKind{Group: "extensions.istio.io", Version: "v1alpha1", Kind: "TrafficExtension"},
		Resource: "trafficextensions",
	}
	WasmPlugin = Kind{
		GVK:      schema.GroupVersionKind{Group: "extensions.istio.io", Version: "v1alpha1", Kind: "WasmPlugin"},
		Resource: "wasmplugins",
	}
)

// Config is where the objects go.
type Config struct {
	// RootNamespace is Istio's root namespace. Empty: DefaultRootNamespace.
	RootNamespace string
	// Revision is the mesh revision that sees the objects (istio.io/rev). Empty: all.
	Revision string
}

func (c Config) namespace() string { return cmp.Or(c.RootNamespace, DefaultRootNamespace) }

// Function is one function as the gateways know it.
type Function struct {
	// Name is namespace/name.
	Name string
	// Service is the one of Istio's registry that requests for the function are routed to.
	Service Service
	// Inputs are the templates of the inputs that requests may name; none: they name none. Requests go to
	// the node's daemon then, unless the prefetch filter says that one names none.
	Inputs reference.Inputs
	// Observed are the templates of inputs that the prefetch filter only names. There are no Inputs then, and requests go as
	// Istio sends them.
	Observed reference.Inputs
}

// ClusterOf is what gateways call a function's cluster, empty if Istio's registry does not know
// the function.
func ClusterOf(f platform.Function) string {
	if f.Service == "" || f.ServicePort == 0 {
		return ""
	}
	return Service{Host: f.Service, Port: f.ServicePort}.cluster()
}

// cluster is Istio's name for it, without a subset.
func (s Service) cluster() string { return fmt.Sprintf("outbound|%d||%s", s.Port, s.Host) }

// Service is one port of a service in Istio's registry.
type Service struct {
	// Host is the service's full name, such as fire.default.svc.cluster.local.
	Host string
	Port int32
	// Endpoints is the name that the node's daemon serves its endpoints by.
	Endpoints string
}

// Functions returns the functions of st that Istio's registry knows.
func Functions(st platform.State) []Function {
	out := make([]Function, 0, len(st.Functions))
	for _, f := range st.Functions {
		if f.Service == "" || f.ServicePort == 0 || f.Withdrawn {
			continue
		}
		fn := Function{Name: f.Name, Service: Service{Host: f.Service, Port: f.ServicePort, Endpoints: f.AssignmentName()}}
		switch {
		case f.Policy.Observe:
			fn.Observed = f.Policy.Templates()
		case f.Policy.StoredInput():
			fn.Inputs = f.Policy.Templates()
		}
		out = append(out, fn)
	}
	return out
}

// Desired is what is to be in the mesh.
type Desired struct {
	Functions []Function
	// PluginConfig is the prefetch filter's configuration, a JSON object.
	PluginConfig []byte
}

// ObjectName is the name of the function's EnvoyFilter.
func ObjectName(function string) string {
	return namePrefix + strings.ReplaceAll(function, "/", ".")
}

// Object returns the function's EnvoyFilter, as it is applied.
func Object(cfg Config, f Function) (*unstructured.Unstructured, error) {
	o, err := envoyFilter(cfg, f)
	if err != nil {
		return nil, fmt.Errorf("EnvoyFilter of %s: %w", f.Name, err)
	}
	return o, nil
}
