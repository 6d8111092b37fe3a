//go:build integration

package replicas

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	system    = "headstart-system"
	functions = "default"
)

// kinds are what this API server has; others are not installed.
var kinds = map[string]schema.GroupVersionKind{
	"services": corev1.SchemeGroupVersion.WithKind("Service"), "pods": corev1.SchemeGroupVersion.WithKind("Pod"), "nodes": corev1.SchemeGroupVersion.WithKind("Node"),
	"secrets": corev1.SchemeGroupVersion.WithKind("Secret"), "configmaps": corev1.SchemeGroupVersion.WithKind("ConfigMap"), "events": corev1.SchemeGroupVersion.WithKind("Event"),
	"deployments": appsv1.SchemeGroupVersion.WithKind("Deployment"), "statefulsets": appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	"horizontalpodautoscalers": {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	"endpointslices":           {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	"leases":                   coordinationv1.SchemeGroupVersion.WithKind("Lease"),
}

// cluster stands for a Kubernetes API server: as much of it as control planes ask for, which
// run beside this process and reach it by HTTP.
type cluster struct {
	t    *testing.T
	http *httptest.Server
	// daemons has the nodes' names by their daemons' tokens.
	daemons map[string]string

	mu      sync.Mutex
	version int
	objects map[string]map[string]runtime.Object // by resource, then namespace/name
	history []change
	more    chan struct{} // closed and replaced at each change
	closed  chan struct{}
	// scaled is told which Deployment has another scale.
	scaled func(name string)
}

// change is an event of a watch.
type change struct {
	version  int
	resource string
	text     []byte
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, daemons: map[string]string{}, objects: map[string]map[string]runtime.Object{}, more: make(chan struct{}), closed: make(chan struct{}), scaled: func(string) {}}
	for resource := range kinds {
		c.objects[resource] = map[string]runtime.Object{}
	}
	c.http = httptest.NewServer(c)
	t.Cleanup(func() { close(c.closed); c.http.Close() })
	c.put("ADDED", "leases", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "headstart-controlplane"}})
	c.put("ADDED", "configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "headstart-replicas"}}) // as the chart does
	return c
}

// kubeconfig writes one for programs.
func (c *cluster) kubeconfig() string {
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: test, clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}],
contexts: [{name: test, context: {cluster: c, user: u}}]}`, c.http.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// put writes an object.
func (c *cluster) put(event, resource string, o runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(event, resource, o)
}

// write does so; the caller holds mu.
func (c *cluster) write(event, resource string, o runtime.Object) {
	o = o.DeepCopyObject()
	c.version++
	m := metaOf(o)
	m.SetResourceVersion(strconv.Itoa(c.version))
	if m.GetUID() == "" {
		m.SetUID(types.UID(fmt.Sprintf("uid-%d", c.version)))
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[resource])
	key := m.GetNamespace() + "/" + m.GetName()
	if c.objects[resource][key] = o; event == "DELETED" {
		delete(c.objects[resource], key)
	}
	c.history = append(c.history, change{c.version, resource, eventOf(event, o)})
	close(c.more)
	c.more = make(chan struct{})
}

func metaOf(o runtime.Object) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err) // all kinds have metadata
	}
	return m
}

func eventOf(event string, o any) []byte {
	text, err := json.Marshal(map[string]any{"type": event, "object": o})
	if err != nil {
		panic(err) // these are objects of Kubernetes
	}
	return append(text, '\n')
}

// join has the API server know a node's daemon, by its token and the address of its pods.
func (c *cluster) join(node, ip string) {
	c.mu.Lock()
	c.daemons["token-"+node] = node
	c.mu.Unlock()
	c.put("ADDED", "pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "headstart-node-" + node, UID: types.UID("daemon-" + node)},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}}})
	c.put("ADDED", "pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "gateway-" + node, UID: types.UID("gateway-" + node)},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "headstart",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}}})
}

// get returns a copy of an object, nil if there is none.
func get[T runtime.Object](c *cluster, resource, namespace, name string) (none T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.objects[resource][namespace+"/"+name]; ok {
		return o.DeepCopyObject().(T)
	}
	return none
}

// place is what a path names.
type place struct{ resource, namespace, name, sub string }

func parse(path string) (p place) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	if parts[0] == "api" {
		parts = parts[min(2, len(parts)):]
	} else {
		group, parts = parts[min(1, len(parts)-1)], parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		p.namespace, parts = parts[1], parts[2:]
	}
	for i, into := range []*string{&p.resource, &p.name, &p.sub} {
		if i < len(parts) {
			*into = parts[i]
		}
	}
	if kinds[p.resource].Group != group {
		p.resource += "." + group // not installed: Knative has services too, which would hide these
	}
	return p
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := parse(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet && p.name == "" && kinds[p.resource].Kind != "" {
		if q := r.URL.Query(); q.Get("watch") != "" {
			c.watch(w, r, p, q.Get("sendInitialEvents") == "true", q.Get("resourceVersion"))
			return
		}
	}
	answer, err := c.answer(r, p)
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewBadRequest(err.Error())
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(s.Code))
		answer = &s
	}
	_ = json.NewEncoder(w).Encode(answer) // whoever asked has gone if this fails
}

func (c *cluster) answer(r *http.Request, p place) (any, error) {
	if r.Method == http.MethodPatch {
		return c.patch(r, p)
	}
	var sent runtime.Object
	if r.Method != http.MethodGet {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if sent, _, err = scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil); err != nil {
			return nil, err
		}
	}
	if review, ok := sent.(*authv1.TokenReview); ok {
		return c.review(review), nil
	}
	if kinds[p.resource].Kind == "" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: p.resource}, p.name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there := c.objects[p.resource][p.namespace+"/"+p.name]
	switch {
	case r.Method == http.MethodGet && p.name == "":
		return c.list(p), nil
	case r.Method == http.MethodPost:
		m := metaOf(sent)
		if c.objects[p.resource][p.namespace+"/"+m.GetName()] != nil {
			return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: p.resource}, m.GetName())
		}
		m.SetNamespace(p.namespace)
		c.write("ADDED", p.resource, sent)
		return c.objects[p.resource][p.namespace+"/"+m.GetName()], nil
	case there == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: p.resource}, p.name)
	case r.Method == http.MethodGet && p.sub == "scale":
		return scaleOf(there.(*appsv1.Deployment)), nil
	case r.Method == http.MethodGet:
		return there, nil
	case r.Method != http.MethodPut:
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: p.resource}, r.Method)
	}
	if v := metaOf(sent).GetResourceVersion(); v != "" && v != metaOf(there).GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: p.resource}, p.name, errors.New("it is another version"))
	}
	if s, ok := sent.(*autoscalingv1.Scale); ok {
		d := there.DeepCopyObject().(*appsv1.Deployment)
		d.Spec.Replicas = &s.Spec.Replicas
		c.write("MODIFIED", p.resource, d)
		c.scaled(p.name)
		return scaleOf(c.objects[p.resource][p.namespace+"/"+p.name].(*appsv1.Deployment)), nil
	}
	metaOf(sent).SetUID(metaOf(there).GetUID())
	c.write("MODIFIED", p.resource, sent)
	return c.objects[p.resource][p.namespace+"/"+p.name], nil
}

// patch merges into the data of a ConfigMap (RFC 7396), the only patch that control planes send here.
func (c *cluster) patch(r *http.Request, p place) (any, error) {
	var sent struct{ Data map[string]*string }
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there, ok := c.objects[p.resource][p.namespace+"/"+p.name].(*corev1.ConfigMap)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: p.resource}, p.name)
	}
	there = there.DeepCopy()
	for key, value := range sent.Data {
		if there.Data == nil {
			there.Data = map[string]string{}
		}
		if delete(there.Data, key); value != nil {
			there.Data[key] = *value
		}
	}
	c.write("MODIFIED", p.resource, there)
	return c.objects[p.resource][p.namespace+"/"+p.name], nil
}

func scaleOf(d *appsv1.Deployment) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Spec:       autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas}}
}

func (c *cluster) list(p place) any {
	items := []runtime.Object{}
	for key, o := range c.objects[p.resource] {
		if p.namespace == "" || strings.HasPrefix(key, p.namespace+"/") {
			items = append(items, o)
		}
	}
	kind := kinds[p.resource]
	return map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version)}, "items": items}
}

// watch tells of changes since a version or, first, what there is.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, p place, initial bool, since string) {
	from, _ := strconv.Atoi(since) // none: from now on
	c.mu.Lock()
	if initial {
		kind := kinds[p.resource]
		for _, o := range c.objects[p.resource] {
			_, _ = w.Write(eventOf("ADDED", o))
		}
		_, _ = w.Write(eventOf("BOOKMARK", map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version), "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}))
	}
	if initial || since == "" {
		from = c.version
	}
	for {
		for _, e := range c.history[min(from, len(c.history)):] {
			if e.resource == p.resource {
				_, _ = w.Write(e.text) // its end shows in the request's context
			}
			from = e.version
		}
		more := c.more
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		case <-c.closed:
			return
		}
		c.mu.Lock()
	}
}

// review says whose a token is.
func (c *cluster) review(r *authv1.TokenReview) *authv1.TokenReview {
	r.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	c.mu.Lock()
	node, ok := c.daemons[r.Spec.Token]
	c.mu.Unlock()
	if !ok {
		return r
	}
	r.Status = authv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authv1.UserInfo{
		Username: "system:serviceaccount:" + system + ":headstart-node", Extra: map[string]authv1.ExtraValue{
			"authentication.kubernetes.io/node-name": {node}, "authentication.kubernetes.io/pod-name": {"headstart-node-" + node}, "authentication.kubernetes.io/pod-uid": {"daemon-" + node}}}}
	return r
}
