package kube_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	namespace = "default"
	system    = "headstart-system" // the control plane's
	hostname  = "kubernetes.io/hostname"
	// replaceAfter is how long the world's Deployment controller waits with the
	// replacement of a pod that has failed.
	replaceAfter = time.Second
)

// world is a cluster with an API server, real or not, and what belongs to it: it plays the
// controller of Deployments, the scheduler and the kubelets.
type world struct {
	t       testing.TB
	clients kube.Clients // the world's own
	own     kube.Clients // the control plane's
	api     api
	p       *kube.Platform
	events  *event.Log
	// inCharge is the control plane's from the next start on.
	inCharge func() bool
	end      func() // of the control plane
	stop     func() // of all

	mu     sync.Mutex // held while the world acts
	nodes  map[string]bool
	failed map[string]time.Time // by Deployment, when a pod of it has failed last
	serial int
}

// api is what differs between a real API server and client-go's fake.
type api interface {
	// bind gives a pod its node.
	bind(ctx context.Context, pod, node string) error
	// stamp readies a Deployment that is to be written.
	stamp(d *appsv1.Deployment)
}

func newWorld(t testing.TB, c, own kube.Clients, a api) *world {
	w := &world{t: t, clients: c, own: own, api: a, nodes: map[string]bool{}, failed: map[string]time.Time{}}
	for _, node := range []string{"edge", "cloud", "fog"} {
		w.place("kube-system", node, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "headstart", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.control(ctx) })
	w.start()
	w.stop = sync.OnceFunc(func() { w.end(); cancel(); running.Wait() })
	t.Cleanup(w.stop)
	return w
}

// place makes a pod on a node, if there is none of the namespace; about says what it is.
func (w *world) place(ns, node string, about func(*corev1.Pod)) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "on-" + node},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}}}
	about(p)
	if _, err := w.clients.Kubernetes.CoreV1().Pods(ns).Create(context.Background(), p, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
}

// start starts a control plane.
func (w *world) start() {
	w.events = &event.Log{}
	w.p = kube.New(w.own, kube.Config{Namespace: system, Stores: storesOf, Destinations: destinationsOf, InCharge: w.inCharge}, w.events, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.p.Run(ctx) })
	w.end = func() { cancel(); running.Wait() }
}

// must fails the test, unless it is over.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
	}
}

// World of the conformance suite.

func (w *world) Platform() platform.Platform { return w.p }

func (w *world) Deployed(f platform.Function) platform.Function {
	ns, name, _ := strings.Cut(f.Name, "/")
	short := name + "." + ns
	p := f.Policy
	p.InputLimit = policy.DefaultInputLimit
	return platform.Function{Name: f.Name, Hosts: []string{short + ".svc.cluster.local", short + ".svc", short}, Image: f.Image, Port: f.Port,
		ProbePath: f.ProbePath, RequestTimeout: time.Hour, Node: f.Node, Service: short + ".svc.cluster.local", ServicePort: 80, Policy: p}
}

func (w *world) Deploy(f platform.Function) {
	w.t.Helper()
	ns, name, _ := strings.Cut(f.Name, "/")
	w.apply(deploymentOf(ns, name, f))
	w.applyService(serviceOf(ns, name, f))
}

func serviceOf(ns, name string, f platform.Function) *corev1.Service {
	annotations := map[string]string{policy.KeyScaleToZero: f.Policy.ScaleToZero.String(), policy.KeyReadyTimeout: f.Policy.ReadyTimeout.String()}
	if f.Policy.Callers != "" {
		annotations[policy.KeyCallers] = f.Policy.Callers
	}
	if f.Policy.Input != "" {
		annotations[policy.KeyInput] = f.Policy.Input
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{
			{Name: "metrics", Port: 9090, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(9090)},
			{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")}}}}
}

// deploymentOf has no replicas, as functions are deployed.
func deploymentOf(ns, name string, f platform.Function) *appsv1.Deployment {
	zero, labels := int32(0), map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "function", Image: f.Image, Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: f.Port}}}}}}}}
	if f.ProbePath != "" {
		d.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: f.ProbePath, Port: intstr.FromString("web")}}}
	}
	if f.Node != "" {
		d.Spec.Template.Spec.NodeSelector = map[string]string{hostname: f.Node}
	}
	return d
}

// apply writes a Deployment.
func (w *world) apply(d *appsv1.Deployment) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	deployments := w.clients.Kubernetes.AppsV1().Deployments(d.Namespace)
	for {
		w.api.stamp(d)
		_, err := deployments.Create(context.Background(), d, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = deployments.Update(context.Background(), d, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) {
			w.must(err)
			return
		}
	}
}

func (w *world) applyService(s *corev1.Service) {
	w.t.Helper()
	services := w.clients.Kubernetes.CoreV1().Services(s.Namespace)
	_, err := services.Create(context.Background(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = services.Update(context.Background(), s, metav1.UpdateOptions{})
	}
	w.must(err)
}

func (w *world) Delete(function string) {
	w.t.Helper()
	ns, name, _ := strings.Cut(function, "/")
	w.must(w.clients.Kubernetes.CoreV1().Services(ns).Delete(context.Background(), name, metav1.DeleteOptions{}))
	w.must(w.clients.Kubernetes.AppsV1().Deployments(ns).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func (w *world) Join(node string) { w.t.Helper(); w.node(node, corev1.ConditionTrue) }

// Leave is what the cluster makes of a node that it does not hear of, unless it hears of none.
func (w *world) Leave(node string) {
	w.t.Helper()
	w.node(node, corev1.ConditionUnknown)
	pods, err := w.clients.Kubernetes.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	w.must(err)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == node {
			w.podStatus(pod.Namespace, pod.Name, func(s *corev1.PodStatus) {
				setCondition(s, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
			})
		}
	}
}

func (w *world) node(name string, ready corev1.ConditionStatus) {
	w.t.Helper()
	w.mu.Lock()
	w.nodes[name] = ready == corev1.ConditionTrue
	w.mu.Unlock()
	nodes := w.clients.Kubernetes.CoreV1().Nodes()
	n, err := nodes.Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n, err = nodes.Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	w.must(err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	_, err = nodes.UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) Ready(in platform.Instance, address string) {
	w.t.Helper()
	w.status(in, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP = corev1.PodRunning, netip.MustParseAddrPort(address).Addr().String()
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		setCondition(s, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	})
}

// Fail is the kubelet's refusal of a pod, Exit an eviction: a program that ends is started
// again in its pod, and is the same instance.
func (w *world) Fail(in platform.Instance) { w.t.Helper(); w.over(in) }
func (w *world) Exit(in platform.Instance) { w.t.Helper(); w.over(in) }

func (w *world) over(in platform.Instance) {
	w.t.Helper()
	_, name, _ := strings.Cut(in.Function, "/")
	w.mu.Lock()
	w.failed[name] = time.Now()
	w.mu.Unlock()
	w.status(in, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodFailed
		setCondition(s, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
	})
}

// status changes the status of an instance's pod.
func (w *world) status(in platform.Instance, change func(*corev1.PodStatus)) {
	w.t.Helper()
	parts := strings.Split(in.ID, "_")
	w.podStatus(parts[0], parts[1], change)
}

func (w *world) podStatus(ns, name string, change func(*corev1.PodStatus)) {
	w.t.Helper()
	pods := w.clients.Kubernetes.CoreV1().Pods(ns)
	for {
		pod, err := pods.Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			w.must(err)
			return
		}
		pod = pod.DeepCopy()
		change(&pod.Status)
		if _, err = pods.UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			w.must(err)
			return
		}
	}
}

func setCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type }), c)
}

// control plays controller and scheduler until ctx ends.
func (w *world) control(ctx context.Context) {
	// Whatever moves, the whole is looked at: there is little of it.
	moved := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, watch := range []func(context.Context, chan<- struct{}){w.watchDeployments, w.watchPods} {
		watching.Go(func() { watch(ctx, moved) })
	}
	tick := time.NewTicker(replaceAfter / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-moved:
		case <-tick.C:
		}
		w.reconcile(ctx)
	}
}

func (w *world) watchDeployments(ctx context.Context, moved chan<- struct{}) {
	for ctx.Err() == nil {
		events, err := w.clients.Kubernetes.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			forward(ctx, events.ResultChan(), moved)
			events.Stop()
		}
	}
}

func (w *world) watchPods(ctx context.Context, moved chan<- struct{}) {
	for ctx.Err() == nil {
		events, err := w.clients.Kubernetes.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			forward(ctx, events.ResultChan(), moved)
			events.Stop()
		}
	}
}

func forward[E any](ctx context.Context, events <-chan E, moved chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				return
			}
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	}
}

func (w *world) reconcile(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	deployments, err := w.clients.Kubernetes.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	pods, err := w.clients.Kubernetes.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	known := map[string]bool{}
	for _, d := range deployments.Items {
		known[d.Name] = true
		w.scale(ctx, &d, pods.Items)
	}
	for _, pod := range pods.Items {
		switch owner, owned := pod.Labels["app"]; {
		case !owned: // Knative's
		case !known[owner]:
			w.remove(ctx, &pod)
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
			w.schedule(ctx, &pod)
		}
	}
}

// scale makes and removes a Deployment's pods.
func (w *world) scale(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod) {
	var live []corev1.Pod
	for _, pod := range pods {
		if pod.Labels["app"] != d.Name || pod.DeletionTimestamp != nil {
			continue
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Spec.Containers[0].Image != d.Spec.Template.Spec.Containers[0].Image {
			w.remove(ctx, &pod)
			continue
		}
		live = append(live, pod)
	}
	for n := len(live); n > int(*d.Spec.Replicas); n-- {
		w.remove(ctx, &live[n-1])
	}
	if len(live) >= int(*d.Spec.Replicas) || time.Since(w.failed[d.Name]) < replaceAfter {
		return
	}
	for range int(*d.Spec.Replicas) - len(live) {
		w.serial++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + strconv.Itoa(w.serial), Labels: d.Spec.Template.Labels}, Spec: *d.Spec.Template.Spec.DeepCopy()}
		pod.UID = "uid-" + typesUID(w.serial) // a real API server makes its own
		_, err := w.clients.Kubernetes.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		w.mustWhile(ctx, err)
	}
}

func (w *world) remove(ctx context.Context, pod *corev1.Pod) {
	now := int64(0)
	err := w.clients.Kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if !apierrors.IsNotFound(err) {
		w.mustWhile(ctx, err)
	}
}

// schedule gives a pod its node, or says why it has none.
func (w *world) schedule(ctx context.Context, pod *corev1.Pod) {
	var fit []string
	for node, up := range w.nodes {
		if want := pod.Spec.NodeSelector[hostname]; up && (want == "" || want == node) {
			fit = append(fit, node)
		}
	}
	if len(fit) > 0 {
		w.mustWhile(ctx, w.api.bind(ctx, pod.Name, slices.Max(fit)))
		return
	}
	message := "no nodes available to schedule pods"
	if len(w.nodes) > 0 {
		message = "0/" + strconv.Itoa(len(w.nodes)) + " nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
	}
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Message == message }) {
		return
	}
	pod = pod.DeepCopy()
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message})
	_, err := w.clients.Kubernetes.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.mustWhile(ctx, err)
	}
}

// mustWhile fails the test, unless it is over.
func (w *world) mustWhile(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.t.Error(err)
	}
}
