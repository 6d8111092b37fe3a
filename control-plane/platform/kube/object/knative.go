package object

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// KnativeService is a Service of serving.knative.dev/v1.
type KnativeService struct {
	metav1.ObjectMeta // with Headstart's annotations only
	URL               string
	Traffic           []Traffic // as it is now, not as it is wanted
}

// Traffic is one target of a Knative Service's requests.
type Traffic struct {
	Revision string `json:"revisionName"`
	Tag      string `json:"tag"`
	Percent  int64  `json:"percent"`
}

// KnativeServiceOf reads an unstructured Service of Knative.
func KnativeServiceOf(o any) (*KnativeService, error) {
	switch s := o.(type) {
	case *KnativeService:
		return s, nil
	case *unstructured.Unstructured:
		kept := &KnativeService{ObjectMeta: identity(s), URL: text(s, "status", "url")}
		kept.Annotations = annotations(s.GetAnnotations())
		if kept.Annotations == nil {
			return kept, nil
		}
		list, _, _ := unstructured.NestedSlice(s.Object, "status", "traffic") // of another type is as good as absent
		for _, item := range list {
			var t Traffic
			if into(item, &t) != nil {
				kept.Traffic = nil // it says nothing of where its requests go
				return kept, nil
			}
			kept.Traffic = append(kept.Traffic, t)
		}
		return kept, nil
	}
	return nil, otherKind(o, "Service of Knative")
}

// into turns a JSON value into what v points to.
func into(value, v any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// Revision is a Revision of serving.knative.dev/v1.
type Revision struct {
	metav1.ObjectMeta
	TimeoutSeconds int64 // 0: not said
	Image          string
}

// RevisionOf reads an unstructured Revision.
func RevisionOf(o any) (*Revision, error) {
	switch r := o.(type) {
	case *Revision:
		return r, nil
	case *unstructured.Unstructured:
		kept := &Revision{ObjectMeta: identity(r)}
		kept.TimeoutSeconds, _, _ = unstructured.NestedInt64(r.Object, "spec", "timeoutSeconds") // of another type is as good as absent
		spec, ok, _ := unstructured.NestedMap(r.Object, "spec")
		var pod struct {
			Containers []corev1.Container `json:"containers"`
		}
		if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil || len(pod.Containers) == 0 {
			return kept, nil
		}
		// With several containers, the one with a port takes the requests.
		kept.Image = pod.Containers[max(0, slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return len(c.Ports) > 0 }))].Image
		return kept, nil
	}
	return nil, otherKind(o, "Revision")
}

// Endpoints is an EndpointSlice.
type Endpoints struct {
	metav1.ObjectMeta
	Service string
	Port    int32 // the one that takes HTTP
	Ready   []Endpoint
}

// Endpoint is one address of an EndpointSlice.
type Endpoint struct {
	IP                      netip.Addr
	Node, PodNamespace, Pod string
}

// EndpointsOf reads a *discoveryv1.EndpointSlice.
func EndpointsOf(o any) (*Endpoints, error) {
	switch s := o.(type) {
	case *Endpoints:
		return s, nil
	case *discoveryv1.EndpointSlice:
		kept := &Endpoints{ObjectMeta: identity(s), Service: s.Labels[discoveryv1.LabelServiceName]}
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			return kept, nil
		}
		kept.Port = httpPort(s.Ports)
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			// All addresses of one endpoint are the same one's (its reference says so).
			ep := Endpoint{IP: addressOf(e.Addresses[0])}
			if e.NodeName != nil {
				ep.Node = *e.NodeName
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				ep.PodNamespace, ep.Pod = e.TargetRef.Namespace, e.TargetRef.Name
			}
			kept.Ready = append(kept.Ready, ep)
		}
		return kept, nil
	}
	return nil, otherKind(o, "EndpointSlice")
}

// httpPort is the first whose name begins with http, without TLS.
func httpPort(ports []discoveryv1.EndpointPort) int32 {
	for _, p := range ports {
		if p.Port != nil && p.Name != nil && strings.HasPrefix(*p.Name, "http") && *p.Name != "https" {
			return *p.Port
		}
	}
	return 0
}
