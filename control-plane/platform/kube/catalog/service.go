package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// problemsMost is how many problems of one Service are told: nobody mends more at once.
const problemsMost = 8

// subject is the object that a function is read from.
type subject struct {
	name        string // namespace/name
	knative     bool
	annotations map[string]string
}

// refuse notes why the subject runs as if it had not opted in.
func (n *reading) refuse(s subject, reason, at, message string) {
	n.problems = append(n.problems, Problem{Function: s.name, Knative: s.knative, Reason: reason, Message: message, Field: at, Refused: true})
}

// service reads a Service that asks for Headstart.
func (n *reading) service(s *object.Service) {
	of := subject{name: n.namespace + "/" + s.Name, annotations: s.Annotations}
	if _, taken := n.objects.KnativeServices[s.Name]; taken {
		return // of that name there is one function
	}
	p, ok := n.policy(of)
	if !ok {
		return
	}
	if p.Workflow != "" {
		n.workflow(of, s, p)
		return
	}
	if p.State != "" {
		n.refuse(of, reasonAnnotationsRefused, policy.KeyState, policy.KeyState+" is of workflows; remove it, or name one by "+policy.KeyWorkflow)
		return
	}
	if !n.selects(of, s) {
		return
	}
	port, ok := httpPort(s.Ports)
	if !ok {
		n.refuse(of, reasonAnnotationsRefused, anyKey(s.Annotations), "annotations headstart.dev/ on a Service without a TCP port have no effect; give it a port, or remove them")
		return
	}
	hosts := n.hosts(s.Name)
	f := &Function{Selector: s.Selector, Target: port.TargetPort, Function: platform.Function{
		Name: of.name, Hosts: hosts, Service: hosts[0], ServicePort: port.Port, HTTP2: saysHTTP2(port), RequestTimeout: requestTimeout, Policy: p, OneAtATime: p.RunsAhead}}
	if f.Target.IntVal == 0 && f.Target.StrVal == "" {
		f.Target.IntVal = port.Port // Kubernetes' default
	}
	_, f.ScalesToZero = s.Annotations[policy.KeyScaleToZero]
	if n.findWorkload(of, f) {
		if f.OneAtATime && f.Workload != nil {
			f.Template = f.Workload.Template.Digest
		}
		n.functions = append(n.functions, f)
	}
}

const (
	reasonAnnotationsRefused   = "AnnotationsRefused"
	reasonAnnotationsConflict  = "AnnotationsConflict"
	reasonNamespaceNotAllowed  = "NamespaceNotAllowed"
	reasonStoreNotGranted      = "StoreNotGranted"
	reasonWorkloadAmbiguous    = "WorkloadAmbiguous"
	reasonTrafficSplit         = "TrafficSplit"
	reasonScaleToZeroNoEffect  = "ScaleToZeroNoEffect"
	reasonSandboxNotClosed     = "SandboxNotClosed"
	messageNoPods              = "annotations headstart.dev/ on a Service %s have no effect, as it has no pods of its own; put them on the Service that selects the pods, or remove them"
	messageNamespaceNotAllowed = "the operator has functions in other namespaces only, and Headstart neither scales nor routes here; remove the annotations headstart.dev/, or ask the operator to add %q to the chart's namespaces"
	messageStoreNotGrantedTail = "the operator grants it to other namespaces only; use another store, or ask the operator to add %q to the store's namespaces"
)

// selects says whether the Service has pods of its own.
func (n *reading) selects(of subject, s *object.Service) bool {
	switch {
	case s.External:
		n.refuse(of, reasonAnnotationsRefused, anyKey(s.Annotations), fmt.Sprintf(messageNoPods, "of type ExternalName"))
	case len(s.Selector) == 0:
		n.refuse(of, reasonAnnotationsRefused, anyKey(s.Annotations), fmt.Sprintf(messageNoPods, "without a selector"))
	default:
		return true
	}
	return false
}

// anyKey is one of the annotations to be moved or removed: the first in order.
func anyKey(annotations map[string]string) string {
	return slices.Sorted(maps.Keys(annotations))[0]
}

// policy reads the annotations against the stores of the namespace.
func (n *reading) policy(of subject) (policy.Policy, bool) {
	if !n.allows(n.namespace) {
		n.refuse(of, reasonNamespaceNotAllowed, anyKey(of.annotations), fmt.Sprintf(messageNamespaceNotAllowed, n.namespace))
		return policy.Policy{}, false
	}
	granted := n.Stores.For(n.namespace)
	p, err := policy.Parse(of.annotations, granted)
	if err == nil {
		return p, true
	}
	var problems field.Errors
	if !errors.As(err, &problems) {
		n.refuse(of, reasonAnnotationsRefused, anyKey(of.annotations), err.Error())
		return policy.Policy{}, false
	}
	for _, e := range problems[:min(len(problems), problemsMost)] {
		_, known := n.Stores.Get(e.Value)
		if _, here := granted.Get(e.Value); (e.Field == policy.KeyStore || e.Field == policy.KeyTriggerStore) && known && !here {
			e := &field.Error{Field: e.Field, Value: e.Value, Problem: "is not for namespace " + n.namespace, Fix: fmt.Sprintf(messageStoreNotGrantedTail, n.namespace)}
			n.refuse(of, reasonStoreNotGranted, e.Field, e.Error())
			continue
		}
		n.refuse(of, reasonAnnotationsRefused, e.Field, e.Error())
	}
	return policy.Policy{}, false
}

// httpPort is the port that serves HTTP: one that says so by its name or its protocol,
// else the first. ok is false if there is no TCP port at all.
func httpPort(ports []corev1.ServicePort) (p corev1.ServicePort, ok bool) {
	for _, candidate := range ports {
		if candidate.Protocol != corev1.ProtocolTCP && candidate.Protocol != "" {
			continue
		}
		if saysHTTP(candidate) {
			return candidate, true
		}
		if !ok {
			p, ok = candidate, true
		}
	}
	return p, ok
}

func saysHTTP(p corev1.ServicePort) bool {
	if p.AppProtocol != nil {
		return isHTTP(protocol(p)) || protocol(p) == protocolH2C
	}
	return isHTTP(p.Name)
}

// protocolH2C is what Kubernetes and Knative call HTTP/2 without TLS.
const protocolH2C = "h2c"

// protocol is what the port says that is spoken there: its protocol has the last word, and then
// its name.
func protocol(p corev1.ServicePort) string {
	if p.AppProtocol != nil {
		return strings.TrimPrefix(*p.AppProtocol, "kubernetes.io/")
	}
	return p.Name
}

// saysHTTP2 tells whether a gateway speaks HTTP/2 there, which the function may speak alone: Istio
// goes by the part of the name before the first hyphen.
func saysHTTP2(p corev1.ServicePort) bool {
	first, _, _ := strings.Cut(protocol(p), "-")
	return first == "http2" || first == "grpc" || first == protocolH2C
}

// isHTTP says so of http, http2, http-web and the like, which Istio reads the same way.
func isHTTP(s string) bool {
	return strings.HasPrefix(s, "http") && !strings.HasPrefix(s, "https")
}
