package istio_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// fake is an API server as far as a Writer can tell. It passes the suite that the real
// one passes.
type fake struct {
	mu        sync.Mutex
	absent    bool // the kinds are unknown
	forbidden bool
	serial    int
	objects   map[string]*entry
	watchers  map[*watcher]bool
	applied   int
	listed    int
}

type entry struct {
	kind   istio.Kind
	object *unstructured.Unstructured
	owner  map[string]string // of each leaf
}

type watcher struct {
	kind   istio.Kind
	query  istio.Query
	events chan watch.Event
	ctx    context.Context
	stop   context.CancelFunc
}

func (w *watcher) Stop()                          { w.stop() }
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func newFake() *fake { return &fake{objects: map[string]*entry{}, watchers: map[*watcher]bool{}} }

func key(k istio.Kind, namespace, name string) string {
	return k.String() + "/" + namespace + "/" + name
}

func (f *fake) check(k istio.Kind) error {
	resource := k.GVR().GroupResource()
	switch {
	case f.absent:
		return apierrors.NewNotFound(resource, "")
	case f.forbidden:
		return apierrors.NewForbidden(resource, "", fmt.Errorf("no rule allows it"))
	}
	return nil
}

func selects(q istio.Query, o *unstructured.Unstructured) bool {
	s, err := labels.Parse(q.Labels)
	return err == nil && s.Matches(labels.Set(o.GetLabels())) && (q.Name == "" || q.Name == o.GetName())
}

func (f *fake) Each(_ context.Context, k istio.Kind, namespace string, q istio.Query,
	do func(unstructured.Unstructured)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	if err := f.check(k); err != nil {
		return err
	}
	for _, e := range f.objects {
		if e.kind == k && e.object.GetNamespace() == namespace && selects(q, e.object) {
			do(*e.object.DeepCopy())
		}
	}
	return nil
}

// looks are how often something was listed.
func (f *fake) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}

// written are how often something was applied.
func (f *fake) written() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

func (f *fake) Apply(_ context.Context, k istio.Kind, o *unstructured.Unstructured, force bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(k); err != nil {
		return err
	}
	f.applied++
	e := f.objects[key(k, o.GetNamespace(), o.GetName())]
	if e == nil {
		if o.GetUID() != "" {
			return apierrors.NewConflict(k.GVR().GroupResource(), o.GetName(), fmt.Errorf("Precondition failed: UID"))
		}
		e = f.add(k, o)
	}
	want := o.DeepCopy()
	unstructured.RemoveNestedField(want.Object, "metadata", "uid")
	if !force {
		for path, value := range leaves(want.Object) {
			if m := e.owner[path]; m != "" && m != istio.FieldManager && !reflect.DeepEqual(leaves(e.object.Object)[path], value) {
				return apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: path}},
					fmt.Sprintf("Apply failed with 1 conflict: conflict with %q: %s", m, path))
			}
		}
	}
	for path, m := range e.owner {
		if _, still := leaves(want.Object)[path]; m == istio.FieldManager && !still {
			unstructured.RemoveNestedField(e.object.Object, strings.Split(path, "\x00")...)
			delete(e.owner, path)
		}
	}
	f.merge(e, want.Object, istio.FieldManager)
	return nil
}

func (f *fake) Delete(_ context.Context, k istio.Kind, namespace, name string, uid types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(k); err != nil {
		return err
	}
	e := f.objects[key(k, namespace, name)]
	if e == nil {
		return apierrors.NewNotFound(k.GVR().GroupResource(), name)
	}
	if e.object.GetUID() != uid {
		return apierrors.NewConflict(k.GVR().GroupResource(), name, fmt.Errorf("Precondition failed: UID"))
	}
	delete(f.objects, key(k, namespace, name))
	f.tell(e, watch.Deleted, e.object)
	return nil
}

func (f *fake) Watch(ctx context.Context, k istio.Kind, _ string, q istio.Query) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(k); err != nil {
		return nil, err
	}
	w := &watcher{kind: k, query: q, events: make(chan watch.Event, 1000)}
	w.ctx, w.stop = context.WithCancel(ctx)
	f.watchers[w] = true
	context.AfterFunc(w.ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
		close(w.events)
	})
	for _, e := range f.objects {
		if e.kind == k && selects(q, e.object) {
			w.events <- watch.Event{Type: watch.Added, Object: e.object.DeepCopy()}
		}
	}
	return w, nil
}

func (f *fake) add(k istio.Kind, o *unstructured.Unstructured) *entry {
	f.serial++
	e := &entry{kind: k, owner: map[string]string{}, object: &unstructured.Unstructured{Object: map[string]any{}}}
	e.object.SetUID(types.UID(fmt.Sprint(f.serial)))
	f.objects[key(k, o.GetNamespace(), o.GetName())] = e
	return e
}

// merge sets the leaves of patch; nil removes one.
func (f *fake) merge(e *entry, patch map[string]any, manager string) {
	before := e.object.DeepCopy()
	for path, value := range leaves(patch) {
		fields := strings.Split(path, "\x00")
		if value == nil {
			unstructured.RemoveNestedField(e.object.Object, fields...)
			maps.DeleteFunc(e.owner, func(p, _ string) bool { return p == path || strings.HasPrefix(p, path+"\x00") })
			continue
		}
		if err := unstructured.SetNestedField(e.object.Object, value, fields...); err != nil {
			panic(err)
		}
		e.owner[path] = manager
	}
	if !reflect.DeepEqual(before, e.object) {
		f.tell(e, watch.Modified, before)
	}
}

func (f *fake) tell(e *entry, t watch.EventType, before *unstructured.Unstructured) {
	for w := range f.watchers {
		if w.kind == e.kind && (selects(w.query, e.object) || selects(w.query, before)) {
			w.events <- watch.Event{Type: t, Object: e.object.DeepCopy()}
		}
	}
}

func leaves(m map[string]any) map[string]any {
	out := map[string]any{}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, v := range m {
			if sub, ok := v.(map[string]any); ok && len(sub) > 0 {
				walk(prefix+k+"\x00", sub)
				continue
			}
			out[prefix+k] = v
		}
	}
	walk("", m)
	return out
}

// The rest is what the suite does as others than the Writer.

func (f *fake) api() istio.API { return f }

func (f *fake) create(_ *testing.T, k istio.Kind, o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.merge(f.add(k, o), o.DeepCopy().Object, "helm")
}

func (f *fake) edit(_ *testing.T, k istio.Kind, namespace, name string, patch map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.merge(f.objects[key(k, namespace, name)], patch, "kubectl-edit")
}

func (f *fake) get(_ *testing.T, k istio.Kind, namespace, name string) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.objects[key(k, namespace, name)]; e != nil {
		return e.object.DeepCopy()
	}
	return nil
}

func (f *fake) permit(_ *testing.T, allowed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forbidden = !allowed
}

func (f *fake) install(_ *testing.T, installed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.absent = !installed
}
