package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// resync is when what could not be written is tried again.
	resync = 5 * time.Second
	// writeTimeout bounds the writing of one KIngress' objects.
	writeTimeout = 10 * time.Second
	// manager is the field manager of what the ingress writes.
	manager = "knative-ingress"
	// gatewayService is what Knative takes for the gateway inside the cluster.
	gatewayService = "istio-ingressgateway.istio-system.svc.cluster.local"
)

var (
	ingresses       = schema.GroupVersionResource{Group: "networking.internal.knative.dev", Version: "v1alpha1", Resource: "ingresses"}
	virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// Ingress does for Knative's KIngresses what net-istio does: a VirtualService for each,
// through the Gateway of a name (namespace/name), and the news that it is ready.
type Ingress struct {
	client  dynamic.Interface
	gateway string
	log     *slog.Logger
}

// NewIngress returns an ingress that does nothing until Run. Requests to the API server
// go by way of via.
func NewIngress(config *rest.Config, via *http.Client, gateway string, log *slog.Logger) (*Ingress, error) {
	client, err := dynamic.NewForConfigAndClient(config, via)
	if err != nil {
		return nil, fmt.Errorf("a client for Knative's ingress: %w", err)
	}
	return &Ingress{client: client, gateway: gateway, log: log}, nil
}

// Run serves until ctx ends.
func (i *Ingress) Run(ctx context.Context) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(i.client, resync)
	put := func(o any) {
		k, ok := o.(*unstructured.Unstructured)
		if !ok {
			return
		}
		if err := i.put(ctx, k); err != nil && ctx.Err() == nil {
			i.log.Warn("Knative's ingress", "name", k.GetName(), "error", err)
		}
	}
	_, err := factory.ForResource(ingresses).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: put, UpdateFunc: func(_, now any) { put(now) }})
	if err != nil {
		return fmt.Errorf("following Knative's ingresses: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// put writes the VirtualService of a KIngress, and then that it is ready.
func (i *Ingress) put(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var k kingress
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &k); err != nil {
		return err
	}
	if k.DeletionTimestamp != nil || k.ready() {
		return nil
	}
	apply := metav1.ApplyOptions{FieldManager: manager, Force: true}
	v, err := k.virtualService(i.gateway)
	if err != nil {
		return err
	}
	if _, err := i.client.Resource(virtualServices).Namespace(k.Namespace).Apply(ctx, k.Name, v, apply); err != nil {
		return fmt.Errorf("applying the VirtualService: %w", err)
	}
	s, err := k.status()
	if err != nil {
		return err
	}
	if _, err := i.client.Resource(ingresses).Namespace(k.Namespace).ApplyStatus(ctx, k.Name, s, apply); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// kingress is an Ingress of networking.internal.knative.dev/v1alpha1, as far as it matters
// here.
type kingress struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Rules []struct {
			Hosts []string `json:"hosts"`
			HTTP  struct {
				Paths []struct {
					Splits []split `json:"splits"`
				} `json:"paths"`
			} `json:"http"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		Conditions         []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

type split struct {
	ServiceName      string            `json:"serviceName"`
	ServiceNamespace string            `json:"serviceNamespace"`
	ServicePort      any               `json:"servicePort"` // a number, or a name
	Percent          int64             `json:"percent"`
	AppendHeaders    map[string]string `json:"appendHeaders"`
}

// ready says whether this generation has been served already.
func (k *kingress) ready() bool {
	for _, c := range k.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && k.Status.ObservedGeneration == k.Generation
		}
	}
	return false
}

type object map[string]any

// virtualService is what net-istio makes of a KIngress without TLS: to the revisions'
// Services, with the headers by which the activator knows the revision.
func (k *kingress) virtualService(gateway string) (*unstructured.Unstructured, error) {
	var hosts []string
	var routes []object
	for _, r := range k.Spec.Rules {
		hosts = append(hosts, r.Hosts...)
		for _, p := range r.HTTP.Paths {
			var to []object
			for _, s := range p.Splits {
				port, err := strconv.Atoi(fmt.Sprint(s.ServicePort))
				if err != nil {
					return nil, fmt.Errorf("a split's port: %w", err)
				}
				to = append(to, object{"weight": s.Percent, "headers": object{"request": object{"set": s.AppendHeaders}},
					"destination": object{"host": s.ServiceName + "." + s.ServiceNamespace + ".svc.cluster.local", "port": object{"number": port}}})
			}
			var matches []object
			for _, h := range r.Hosts {
				matches = append(matches, object{"authority": object{"prefix": h}})
			}
			routes = append(routes, object{"match": matches, "route": to, "retries": object{}})
		}
	}
	return k.owned("networking.istio.io/v1", "VirtualService", object{"spec": object{"hosts": hosts, "gateways": []string{gateway}, "http": routes}})
}

func (k *kingress) status() (*unstructured.Unstructured, error) {
	now := metav1.Now().UTC().Format(time.RFC3339)
	var conditions []object
	for _, t := range []string{"LoadBalancerReady", "NetworkConfigured", "Ready"} {
		conditions = append(conditions, object{"type": t, "status": "True", "lastTransitionTime": now})
	}
	lb := object{"ingress": []object{{"domainInternal": gatewayService}}}
	return k.object("networking.internal.knative.dev/v1alpha1", "Ingress", object{"status": object{
		"observedGeneration": k.Generation, "conditions": conditions, "publicLoadBalancer": lb, "privateLoadBalancer": lb}})
}

// owned goes with the KIngress.
func (k *kingress) owned(version, kind string, fields object) (*unstructured.Unstructured, error) {
	o, err := k.object(version, kind, fields)
	if err == nil {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "networking.internal.knative.dev/v1alpha1", Kind: "Ingress", Name: k.Name, UID: k.UID}})
	}
	return o, err
}

// object has only JSON's own types, as unstructured objects must.
func (k *kingress) object(version, kind string, fields object) (*unstructured.Unstructured, error) {
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(b, &o.Object); err != nil {
		return nil, err
	}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(k.Namespace)
	o.SetName(k.Name)
	return o, nil
}
