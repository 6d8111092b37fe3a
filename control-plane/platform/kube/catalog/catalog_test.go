package catalog_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var reader = catalog.Reader{Stores: stores.Stores{
	{Name: "default", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"videos"}},
	{Name: "archive", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"old"}, Namespaces: []string{"vault"}},
}}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name}
}

// service selects the pods of its name.
func service(name string, annotations map[string]string) *object.Service {
	s := &object.Service{ObjectMeta: named(name), Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}}
	s.Annotations = annotations
	return s
}

func deployment(name, app string) *object.Workload {
	return &object.Workload{ObjectMeta: named(name), Kind: object.Deployment, Labels: map[string]string{"app": app, "pod-template-hash": "x"}, Template: object.Template{
		Containers: []object.Container{{Name: "function", Image: "example.com/" + app, Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}}}
}

var idle = map[string]string{policy.KeyScaleToZero: "30s"}

// with is a namespace of services and Deployments.
func with(services []*object.Service, deployments ...*object.Workload) catalog.Objects {
	o := catalog.Objects{Services: map[string]*object.Service{}, Deployments: map[string]*object.Workload{}}
	for _, s := range services {
		o.Services[s.Name] = s
	}
	for _, d := range deployments {
		o.Deployments[d.Name] = d
	}
	return o
}

func TestAServiceBecomesAFunction(t *testing.T) {
	d := deployment("fire", "fire")
	functions, problems := reader.Read("shop", with([]*object.Service{service("fire", idle), service("plain", nil)}, d, deployment("plain", "plain")))
	if len(problems) != 0 || len(functions) != 1 {
		t.Fatalf("functions %+v, problems %+v", functions, problems)
	}
	p := policy.Default()
	p.ScaleToZero = 30 * time.Second
	want := &catalog.Function{Selector: map[string]string{"app": "fire"}, Target: intstr.FromInt32(8080), Workload: d, ScalesToZero: true, Wakes: true, Function: platform.Function{
		Name: "shop/fire", Hosts: []string{"fire.shop.svc.cluster.local", "fire.shop.svc", "fire.shop"}, Image: "example.com/fire", Port: 8080,
		RequestTimeout: time.Hour, Service: "fire.shop.svc.cluster.local", ServicePort: 80, Policy: p}}
	if d := cmp.Diff(want, functions[0]); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// Of an observed function Headstart has the inputs' templates, and neither scales nor wakes its pods.
func TestAnObservedFunctionIsNotScaled(t *testing.T) {
	observed := map[string]string{policy.KeyMode: policy.ModeObserve, policy.KeyInput: "s3://videos/{header.x-key}"}
	functions, problems := reader.Read("shop", with([]*object.Service{service("fire", observed)}, deployment("fire", "fire")))
	if len(problems) != 0 || len(functions) != 1 {
		t.Fatalf("functions %+v, problems %+v", functions, problems)
	}
	if f := functions[0]; f.ScalesToZero || f.Wakes || !f.Policy.Observe {
		t.Errorf("%+v", f)
	}
	observed[policy.KeyScaleToZero] = "30s"
	functions, problems = reader.Read("shop", with([]*object.Service{service("fire", observed)}, deployment("fire", "fire")))
	if len(functions) != 0 || len(problems) != 1 || problems[0].Field != policy.KeyScaleToZero || !problems[0].Refused {
		t.Errorf("with an idle window: functions %+v, problems %+v", functions, problems)
	}
}

func TestWhatIsRefused(t *testing.T) {
	external := service("fire", idle)
	external.External = true
	blind := service("fire", idle)
	blind.Selector = nil
	mute := service("fire", idle)
	mute.Ports = []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}
	wide := service("fire", idle)
	twin := service("twin", map[string]string{policy.KeyScaleToZero: "40s"})
	twin.Selector = map[string]string{"app": "fire"}

	for _, c := range []struct {
		name     string
		services []*object.Service
		others   []*object.Workload
		reason   string
		field    string
		says     string
		n        int
	}{
		{"a typo", []*object.Service{service("fire", map[string]string{"headstart.dev/scale-to-zerro": "1s"})}, nil, "AnnotationsRefused", "headstart.dev/scale-to-zerro", "did you mean headstart.dev/scale-to-zero?", 1},
		{"a wrong value", []*object.Service{service("fire", map[string]string{policy.KeyScaleToZero: "1"})}, nil, "AnnotationsRefused", policy.KeyScaleToZero, `"1" is not a duration; write it like`, 1},
		{"an ExternalName", []*object.Service{external}, nil, "AnnotationsRefused", policy.KeyScaleToZero, "of type ExternalName", 1},
		{"no selector", []*object.Service{blind}, nil, "AnnotationsRefused", policy.KeyScaleToZero, "without a selector", 1},
		{"no port", []*object.Service{mute}, nil, "AnnotationsRefused", policy.KeyScaleToZero, "without a TCP port", 1},
		{"a store of others", []*object.Service{service("fire", map[string]string{policy.KeyInput: "s3://old/a", policy.KeyStore: "archive"})}, nil,
			"StoreNotGranted", policy.KeyStore, `headstart.dev/store: "archive" is not for namespace shop; the operator grants it to other namespaces only; use another store, or ask the operator to add "shop"`, 1},
		{"a store of nobody", []*object.Service{service("fire", map[string]string{policy.KeyInput: "s3://old/a", policy.KeyStore: "none"})}, nil, "AnnotationsRefused", policy.KeyStore, "is not among the operator's stores; use one of default", 1},
		{"two workloads", []*object.Service{wide}, []*object.Workload{deployment("other", "fire")}, "WorkloadAmbiguous", policy.KeyScaleToZero, "Deployment fire and Deployment other", 1},
		{"two windows", []*object.Service{service("fire", idle), twin}, nil, "AnnotationsConflict", policy.KeyScaleToZero, `Deployment fire is behind several Services that do not agree: "30s" on shop/fire, "40s" on shop/twin`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			functions, problems := reader.Read("shop", with(c.services, append(c.others, deployment("fire", "fire"))...))
			if len(functions) != 0 || len(problems) != c.n {
				t.Fatalf("functions %+v, problems %+v", functions, problems)
			}
			if p := problems[0]; !p.Refused || p.Function != "shop/fire" || p.Reason != c.reason || p.Field != c.field || !strings.Contains(p.Message, c.says) {
				t.Errorf("problem %+v", p)
			}
		})
	}
}

func TestAGrantedStore(t *testing.T) {
	s := service("fire", map[string]string{policy.KeyInput: "s3://old/a", policy.KeyStore: "archive"})
	if functions, problems := reader.Read("vault", with([]*object.Service{s})); len(functions) != 1 || len(problems) != 0 {
		t.Errorf("functions %+v, problems %+v", functions, problems)
	}
}

// Two Services of one workload are two functions, and one window is no conflict.
func TestServicesShareAWorkload(t *testing.T) {
	twin := service("twin", map[string]string{policy.KeyInput: "s3://videos/a"})
	twin.Selector = map[string]string{"app": "fire"}
	d := deployment("fire", "fire")
	functions, problems := reader.Read("shop", with([]*object.Service{service("fire", idle), twin}, d))
	if len(functions) != 2 || len(problems) != 0 || functions[0].Workload != d || functions[1].Workload != d || !functions[0].ScalesToZero || functions[1].ScalesToZero {
		t.Errorf("functions %+v, problems %+v", functions, problems)
	}
}

// Without scaling, it does not matter how many workloads there are.
func TestACanaryThatIsNotScaled(t *testing.T) {
	functions, problems := reader.Read("shop", with([]*object.Service{service("fire", map[string]string{policy.KeyInput: "s3://videos/a"})}, deployment("fire", "fire"), deployment("canary", "fire")))
	if len(functions) != 1 || len(problems) != 0 || functions[0].Workload != nil || functions[0].Port != 8080 {
		t.Errorf("functions %+v, problems %+v", functions, problems)
	}
}

func TestOtherAutoscalers(t *testing.T) {
	scaler := func(kind, name, target string, least int32) map[string]*object.Scaler {
		return map[string]*object.Scaler{name: {ObjectMeta: named(name), Kind: kind, TargetKind: target, TargetName: "fire", Least: least}}
	}
	hpa := scaler(object.HorizontalPodAutoscaler, "h", object.Deployment, 1)
	for _, c := range []struct {
		name              string
		autoscalers, keda map[string]*object.Scaler
		want              string
		toZero, wakes     bool
		problem           string
	}{
		{"none", scaler(object.HorizontalPodAutoscaler, "h", object.StatefulSet, 1), nil, "", true, true, ""},
		{"HPA, which rests at zero", hpa, nil, "HorizontalPodAutoscaler h", true, true, ""},
		{"HPA that scales to zero", scaler(object.HorizontalPodAutoscaler, "h", object.Deployment, 0), nil, "HorizontalPodAutoscaler h", false, true, ""},
		{"KEDA, which makes an HPA", hpa, scaler(object.ScaledObject, "k", object.Deployment, 0), "ScaledObject k", false, true, ""},
		{"KEDA that keeps replicas", hpa, scaler(object.ScaledObject, "k", object.Deployment, 2), "ScaledObject k", false, false, "minReplicaCount to 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := with([]*object.Service{service("fire", idle)}, deployment("fire", "fire"))
			o.Autoscalers, o.ScaledObjects = c.autoscalers, c.keda
			functions, problems := reader.Read("shop", o)
			if len(functions) != 1 || functions[0].Scaler != c.want || functions[0].ScalesToZero != c.toZero || functions[0].Wakes != c.wakes {
				t.Errorf("functions %+v", functions)
			}
			if (len(problems) == 0) != (c.problem == "") || c.problem != "" && !strings.Contains(problems[0].Message, c.problem) {
				t.Errorf("problems %+v", problems)
			}
		})
	}
}

func TestThePortThatServesHTTP(t *testing.T) {
	h2c, grpc, http1 := "kubernetes.io/h2c", "grpc", "http"
	for _, c := range []struct {
		name  string
		ports []corev1.ServicePort
		want  int32
		http2 bool
	}{
		{"the only one", []corev1.ServicePort{{Name: "x", Port: 1}}, 1, false},
		{"the first", []corev1.ServicePort{{Name: "x", Port: 1}, {Name: "y", Port: 2}}, 1, false},
		{"by its name", []corev1.ServicePort{{Name: "x", Port: 1}, {Name: "http-web", Port: 2}}, 2, false},
		{"not TLS", []corev1.ServicePort{{Name: "https", Port: 1}, {Name: "http", Port: 2}}, 2, false},
		{"by its protocol", []corev1.ServicePort{{Name: "x", Port: 1}, {Name: "y", Port: 2, AppProtocol: &h2c}}, 2, true},
		{"HTTP/2 by its name", []corev1.ServicePort{{Name: "x", Port: 1}, {Name: "http2-web", Port: 2}}, 2, true},
		{"as Knative says it", []corev1.ServicePort{{Name: "h2c", Port: 1}}, 1, true},
		{"gRPC by its name", []corev1.ServicePort{{Name: "grpc", Port: 1}}, 1, true},
		{"a name that begins like it", []corev1.ServicePort{{Name: "http2x", Port: 1}}, 1, false},
		{"the protocol has the last word", []corev1.ServicePort{{Name: "x", Port: 1}, {Name: "http", Port: 2, AppProtocol: &grpc}}, 1, false},
		{"and says HTTP/1.1", []corev1.ServicePort{{Name: "grpc", Port: 1, AppProtocol: &http1}}, 1, false},
		{"TCP only", []corev1.ServicePort{{Name: "http", Port: 1, Protocol: corev1.ProtocolUDP}, {Name: "y", Port: 2}}, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service("fire", idle)
			s.Ports = c.ports
			functions, _ := reader.Read("shop", with([]*object.Service{s}))
			if len(functions) != 1 || functions[0].ServicePort != c.want || functions[0].Target.IntVal != c.want || functions[0].HTTP2 != c.http2 {
				t.Errorf("functions %+v", functions)
			}
		})
	}
}

func TestWhoTellsReadiness(t *testing.T) {
	get := func(path string, port any, more func(*corev1.HTTPGetAction)) *corev1.Probe {
		g := &corev1.HTTPGetAction{Path: path, Port: intstr.Parse(port.(string))}
		if more != nil {
			more(g)
		}
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: g}}
	}
	for _, c := range []struct {
		name     string
		probe    *corev1.Probe
		change   func(*object.Template)
		path     string
		platform bool
	}{
		{name: "no probe"},
		{name: "HTTP", probe: get("/healthz?full=1", "web", nil), path: "/healthz?full=1"},
		{name: "HTTP without a path", probe: get("", "8080", nil), path: "/"},
		{name: "TCP", probe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}},
		{name: "another port", probe: get("/", "9090", nil), platform: true},
		{name: "an unknown port", probe: get("/", "admin", nil), platform: true},
		{name: "HTTPS", probe: get("/", "web", func(g *corev1.HTTPGetAction) { g.Scheme = corev1.URISchemeHTTPS }), platform: true},
		{name: "headers", probe: get("/", "web", func(g *corev1.HTTPGetAction) { g.HTTPHeaders = []corev1.HTTPHeader{{Name: "a", Value: "b"}} }), platform: true},
		{name: "a path that breaks the request", probe: get("/a b", "web", nil), platform: true},
		{name: "exec", probe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}, platform: true},
		{name: "gRPC", probe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 8080}}}, platform: true},
		{name: "a sidecar", probe: get("/", "web", nil), platform: true, change: func(t *object.Template) {
			t.Containers = append(t.Containers, object.Container{Name: "proxy", Probe: get("/", "15021", nil)})
		}},
		{name: "a readiness gate", platform: true, change: func(t *object.Template) { t.Gated = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := deployment("fire", "fire")
			d.Template.Containers[0].Probe = c.probe
			if c.change != nil {
				c.change(&d.Template)
			}
			functions, _ := reader.Read("shop", with([]*object.Service{service("fire", idle)}, d))
			if f := functions[0]; f.ProbePath != c.path || f.PlatformReadiness != c.platform {
				t.Errorf("path %q, platform %t", f.ProbePath, f.PlatformReadiness)
			}
		})
	}
}

func TestKnativeServices(t *testing.T) {
	service := func(annotations map[string]string, traffic ...object.Traffic) map[string]*object.KnativeService {
		s := &object.KnativeService{ObjectMeta: named("fire"), URL: "http://fire.shop.example.com", Traffic: traffic}
		s.Annotations = annotations
		return map[string]*object.KnativeService{"fire": s}
	}
	public := &object.Service{ObjectMeta: named("fire-1"), Knative: true, Ports: []corev1.ServicePort{{Name: "http2", Port: 80, TargetPort: intstr.FromInt32(8013)}}}
	public.Annotations = idle // Knative copies them
	for _, c := range []struct {
		name      string
		services  map[string]*object.KnativeService
		public    *object.Service
		functions int
		reason    string
	}{
		{"not opted in", service(nil, object.Traffic{Revision: "fire-1", Percent: 100}), public, 0, ""},
		{"not ready", service(map[string]string{policy.KeyInput: "s3://videos/a"}), public, 0, ""},
		{"no Service yet", service(map[string]string{policy.KeyInput: "s3://videos/a"}, object.Traffic{Revision: "fire-2", Percent: 100}), public, 0, ""},
		{"ready", service(map[string]string{policy.KeyInput: "s3://videos/a"}, object.Traffic{Revision: "fire-1", Percent: 100}), public, 1, ""},
		{"two targets, one revision", service(map[string]string{policy.KeyInput: "s3://videos/a"}, object.Traffic{Revision: "fire-1", Percent: 60}, object.Traffic{Revision: "fire-1", Percent: 40}), public, 1, ""},
		{"split", service(map[string]string{policy.KeyInput: "s3://videos/a"}, object.Traffic{Revision: "fire-1", Percent: 60}, object.Traffic{Revision: "fire-2", Percent: 40}), public, 0, "TrafficSplit"},
		{"our scaling", service(idle, object.Traffic{Revision: "fire-1", Percent: 100}), public, 1, "ScaleToZeroNoEffect"},
		{"ahead", service(map[string]string{policy.KeySpeculation: policy.SpeculationAllowed}, object.Traffic{Revision: "fire-1", Percent: 100}), public, 1, "SandboxNotClosed"},
		{"malformed", service(map[string]string{policy.KeyInput: "videos"}, object.Traffic{Revision: "fire-1", Percent: 100}), public, 0, "AnnotationsRefused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			functions, problems := reader.Read("shop", catalog.Objects{KnativeServices: c.services, Services: map[string]*object.Service{c.public.Name: c.public}})
			if len(functions) != c.functions || (len(problems) == 0) != (c.reason == "") {
				t.Fatalf("functions %+v, problems %+v", functions, problems)
			}
			if c.reason != "" && (problems[0].Reason != c.reason || !problems[0].Knative) {
				t.Errorf("problems %+v", problems)
			}
			if c.functions == 1 && (functions[0].OneAtATime || functions[0].Policy.RunsAhead) {
				t.Errorf("the activator's requests are not counted: %+v", functions[0])
			}
			if c.functions == 1 && functions[0].Relay.Address != "fire-1.shop.svc.cluster.local:80" { // it has no address of its own
				t.Errorf("relay %+v", functions[0].Relay)
			}
		})
	}
}

// Where the operator has no functions, a Service with annotations runs as if it had none, and its owner hears of it.
func TestANamespaceThatMayHaveNoFunctions(t *testing.T) {
	objects := with([]*object.Service{service("fire", idle), service("plain", nil)}, deployment("fire", "fire"))
	elsewhere := catalog.Reader{Stores: reader.Stores, Namespaces: []string{"media"}}
	functions, problems := elsewhere.Read("shop", objects)
	if len(functions) != 0 || len(problems) != 1 || problems[0].Reason != "NamespaceNotAllowed" || !problems[0].Refused ||
		!strings.Contains(problems[0].Message, `add "shop" to the chart's namespaces`) {
		t.Errorf("functions %+v, problems %+v", functions, problems)
	}
	here := catalog.Reader{Stores: reader.Stores, Namespaces: []string{"media", "shop"}}
	if functions, problems := here.Read("shop", objects); len(functions) != 1 || len(problems) != 0 {
		t.Errorf("functions %+v, problems %+v", functions, problems)
	}
}
