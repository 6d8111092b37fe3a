//go:build integration

package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// How long a cluster takes, as these tests have it.
const (
	scheduling = 200 * time.Millisecond
	starting   = 500 * time.Millisecond
	goesOn     = 300 * time.Millisecond // from when a pod is told to end, until its program does
	ending     = 3 * time.Second        // for the requests that it has then
)

// functionPort is that of all pods, each of which has an address of its own.
const functionPort = 8080

// kubelet makes and ends the pods of Deployments. A pod is a server in this process.
type kubelet struct {
	c       *cluster
	nodes   []string
	running sync.WaitGroup
	// zeroes is how often a Deployment was scaled to zero, by its name.
	zeroes map[string]int

	mu   sync.Mutex
	made int
	pods map[string][]*pod // by Deployment
	over bool              // no pod is made any more
}

type pod struct {
	object *corev1.Pod
	server *http.Server
}

func newKubelet(c *cluster, nodes ...string) *kubelet {
	k := &kubelet{c: c, nodes: nodes, zeroes: map[string]int{}, pods: map[string][]*pod{}}
	for _, node := range nodes {
		c.put("ADDED", "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	c.scaled = k.look
	c.t.Cleanup(func() {
		k.mu.Lock()
		k.over = true
		for _, of := range k.pods {
			for _, p := range of {
				p.server.Close()
			}
		}
		k.mu.Unlock()
		k.running.Wait()
	})
	return k
}

// deploy makes a function of a Deployment.
func (k *kubelet) deploy(name string, replicas int32, idle time.Duration) {
	labels := map[string]string{"app": name}
	k.c.put("ADDED", "deployments", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: functions, Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "function", Image: "function", Ports: []corev1.ContainerPort{{ContainerPort: functionPort}}}}}}}})
	k.c.put("ADDED", "services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: functions, Name: name, Annotations: map[string]string{"headstart.dev/scale-to-zero": idle.String()}},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(functionPort)}}}})
	k.look(name)
}

// look has a Deployment's pods made as many as they are to be. It does not block.
func (k *kubelet) look(name string) {
	k.running.Go(func() {
		time.Sleep(scheduling)
		for k.fit(name) {
		}
	})
}

// fit makes or ends one pod, and returns whether there may be more to do.
func (k *kubelet) fit(name string) (again bool) {
	wanted := int(*get[*appsv1.Deployment](k.c, "deployments", functions, name).Spec.Replicas)
	k.mu.Lock()
	have := k.pods[name]
	switch {
	case k.over:
	case len(have) < wanted:
		k.made++
		p := k.pod(name, k.made)
		k.pods[name] = append(have, p)
		k.mu.Unlock()
		k.start(p)
		return true
	case len(have) > wanted:
		k.pods[name] = have[1:]
		if wanted == 0 && len(have) == 1 {
			k.zeroes[name]++
		}
		k.mu.Unlock()
		k.end(have[0])
		return true
	}
	k.mu.Unlock()
	return false
}

// zeroesOf is how often a function came to zero.
func (k *kubelet) zeroesOf(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.zeroes[name]
}

func (k *kubelet) pod(function string, number int) *pod {
	p := &pod{object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: functions, Name: fmt.Sprintf("%s-%d", function, number), Labels: map[string]string{"app": function}},
		Spec: corev1.PodSpec{NodeName: k.nodes[number%len(k.nodes)], Containers: []corev1.Container{{Name: "function", Image: "function", Ports: []corev1.ContainerPort{{ContainerPort: functionPort}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, PodIP: fmt.Sprintf("127.20.%d.%d", number/250, number%250+1),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}}}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the answer does not depend on it
		_, _ = io.WriteString(w, function)
	})}
	return p
}

// start is a pod's way from its node to its readiness.
func (k *kubelet) start(p *pod) {
	k.c.put("ADDED", "pods", p.object)
	k.running.Go(func() {
		time.Sleep(starting)
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", p.object.Status.PodIP, functionPort))
		if err != nil {
			k.c.t.Error(err)
			return
		}
		k.change(p, func(o *corev1.Pod) {
			o.Status.Phase, o.Status.Conditions[0].Status = corev1.PodRunning, corev1.ConditionTrue
		})
		k.running.Go(func() {
			if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				k.c.t.Error(err)
			}
		})
	})
}

// end is a pod's way out.
func (k *kubelet) end(p *pod) {
	k.change(p, func(o *corev1.Pod) {
		now := metav1.Now()
		o.DeletionTimestamp = &now
	})
	k.running.Go(func() {
		time.Sleep(goesOn)
		ctx, cancel := context.WithTimeout(context.Background(), ending)
		defer cancel()
		_ = p.server.Shutdown(ctx) // what it does not end is broken off
		p.server.Close()
		k.c.put("DELETED", "pods", get[*corev1.Pod](k.c, "pods", functions, p.object.Name))
	})
}

// change changes the pod in the cluster.
func (k *kubelet) change(p *pod, change func(*corev1.Pod)) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	there, ok := k.c.objects["pods"][functions+"/"+p.object.Name].(*corev1.Pod)
	if !ok {
		return
	}
	next := there.DeepCopy()
	change(next)
	k.c.write("MODIFIED", "pods", next)
}
