// Package catalog reads from the objects of a namespace which functions it has, and what
// keeps a Service that asks for Headstart from being one. It does no I/O.
package catalog

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const (
	// domain ends the names of Services.
	domain = "cluster.local"
	// requestTimeout bounds a request to a Service's function. Kubernetes knows no such
	// bound, and what worked without Headstart goes on to: it is only there to end what
	// will never end.
	requestTimeout = time.Hour
	// revisionTimeout is Knative's revision-timeout-seconds.
	revisionTimeout = 5 * time.Minute
)

// Objects are those of one namespace, by name.
type Objects struct {
	Services                   map[string]*object.Service
	Deployments, StatefulSets  map[string]*object.Workload
	Autoscalers, ScaledObjects map[string]*object.Scaler
	KnativeServices            map[string]*object.KnativeService
	Revisions                  map[string]*object.Revision
	Workflows                  map[string]*object.Workflow
}

// Function is a function with what its instances are found and scaled by. Generation is
// left 0.
type Function struct {
	platform.Function
	// Selector and Target find the instances and their port; of no meaning with a Relay.
	Selector map[string]string
	Target   intstr.IntOrString
	// Workload makes the instances; nil: none does, or several do.
	Workload *object.Workload
	// ScalesToZero: Headstart scales the workload to zero. Several functions of one workload may say so, with one idle
	// window.
	ScalesToZero bool
	// Wakes: Headstart scales the workload from zero.
	Wakes bool
	// Scaler is the autoscaler that has the workload, like "HorizontalPodAutoscaler fire", and whose it is to have more
	// replicas than none. Least is how few it leaves.
	Scaler string
	Least  int32
	// Relay takes the requests of a function of Knative's.
	Relay *platform.Relay
}

// Problem is what is wrong with what a Service, or a Knative Service, asks for.
type Problem struct {
	Function string // namespace/name, also of what is none because of the problem
	Knative  bool
	Reason   string // one CamelCase word
	Message  string
	Field    string // the annotation to mend, if one is at fault
	// Refused: it runs as if it had not opted in.
	Refused bool
}

// Reader reads namespaces.
type Reader struct {
	Stores stores.Stores
	// Namespaces are those that may have functions; none: all may.
	Namespaces []string
	// FunctionsMost is how many functions a namespace may have, so that its Services do not take what
	// those of others need; 0: DefaultFunctionsMost.
	FunctionsMost int
}

// allows says whether the namespace may have functions.
func (r Reader) allows(namespace string) bool {
	return len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace)
}

// reading is one namespace as it is being read.
type reading struct {
	Reader
	namespace string
	objects   Objects
	functions []*Function
	problems  []Problem
}

// Read returns functions and problems, sorted by the function's name.
func (r Reader) Read(namespace string, o Objects) ([]*Function, []Problem) {
	n := &reading{Reader: r, namespace: namespace, objects: o}
	for _, s := range n.admitted() {
		if s.knative != nil {
			n.knative(s.knative)
		} else {
			n.service(s.service)
		}
	}
	n.settle()
	slices.SortStableFunc(n.functions, func(a, b *Function) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(n.problems, func(a, b Problem) int { return cmp.Compare(a.Function, b.Function) })
	return n.functions, n.problems
}

// hosts are the authorities of a Service, the full one first.
func (n *reading) hosts(service string) []string {
	short := service + "." + n.namespace
	return []string{short + ".svc." + domain, short + ".svc", short}
}
