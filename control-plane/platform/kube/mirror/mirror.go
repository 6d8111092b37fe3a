// Package mirror keeps a copy of all objects of one kind, and tells of each change as it
// comes in. It goes on by itself after every failure, and says what the failure is.
package mirror

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// retryFirst and retryMost are how long a mirror waits before it tries again. A cluster
	// whose API server comes back is mirrored again within the second of the two, which is
	// much less than client-go's own 30 s to 60 s.
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
	// retryAbsent is how long an optional kind that does not exist, or may not be read, is
	// left alone: somebody has to install or allow it first.
	retryAbsent = 10 * time.Second
)

// Source lists and watches the objects of one kind.
type Source interface {
	List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	// IsWatchListSemanticsUnSupported says that Watch cannot begin with what there is.
	IsWatchListSemanticsUnSupported() bool
}

// Kind is what is to be mirrored.
type Kind[T metav1.Object] struct {
	// Group and Resource name the kind, for people and for RBAC.
	Group, Resource string
	// Optional: it may be absent, or forbidden.
	Optional bool
	Source   Source
	// Keep makes what is kept of an object. It also gets what it has made.
	Keep func(any) (T, error)
}

// Mirror is the copy.
type Mirror[T metav1.Object] struct {
	kind    Kind[T]
	mu      sync.Locker
	changed func(before, now T)
	status  Status
	denied  time.Time // since when it is
	settled chan struct{}
	items   map[string]map[string]T // by namespace, then name
}

// New returns a mirror that is empty until Run. mu guards all that it has: it is held
// while changed is called, with the zero value for an object that was not or is no more,
// and the caller holds it for Of, Get and Status.
func New[T metav1.Object](kind Kind[T], mu sync.Locker, changed func(before, now T)) *Mirror[T] {
	return &Mirror[T]{kind: kind, mu: mu, changed: changed, settled: make(chan struct{}), items: map[string]map[string]T{},
		status: Status{Resource: resource(kind.Group, kind.Resource), Optional: kind.Optional}}
}

// resource is how kubectl names a kind.
func resource(group, name string) string {
	if group == "" {
		return name
	}
	return name + "." + group
}

// Of returns the namespace's objects by name. It is the mirror's own map.
func (m *Mirror[T]) Of(namespace string) map[string]T { return m.items[namespace] }

// Get returns an object, the zero value if there is none.
func (m *Mirror[T]) Get(namespace, name string) T { return m.items[namespace][name] }

// Namespaces calls f with each namespace that has objects.
func (m *Mirror[T]) Namespaces(f func(namespace string)) {
	for namespace := range m.items {
		f(namespace)
	}
}

// Settled is closed once the mirror has what there was at its start; for an optional
// kind also when that cannot be had.
func (m *Mirror[T]) Settled() <-chan struct{} { return m.settled }

// Status says how the mirror is.
func (m *Mirror[T]) Status() Status { return m.status }

// Run mirrors until ctx ends. It is called once.
func (m *Mirror[T]) Run(ctx context.Context) {
	var quiet klog.Logger // what goes wrong is in the status
	ctx = klog.NewContext(ctx, quiet)
	reflector := cache.NewReflectorWithOptions(m.observed(), nil, (*store[T])(m), cache.ReflectorOptions{
		Name: m.status.Resource, TypeDescription: m.status.Resource, Logger: &quiet, Backoff: backoff()})
	delay := backoff()
	for ctx.Err() == nil {
		began := time.Now()
		// What failed is noted where it did.
		_ = reflector.ListAndWatchWithContext(ctx)
		if time.Since(began) > retryMost {
			delay = backoff()
		}
		pause := delay.Step()
		m.mu.Lock()
		if m.lacks() {
			pause = retryAbsent
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 10, Cap: retryMost}
}

// store is the mirror as the reflector fills it.
type store[T metav1.Object] Mirror[T]

var _ cache.TransformingStore = &store[*metav1.PartialObjectMetadata]{}

// Transformer implements cache.TransformingStore: the first list is never held whole.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.kind.Keep(o) }
}

// Add implements cache.ReflectorStore.
func (s *store[T]) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *store[T]) Update(o any) error {
	now, err := s.kind.Keep(o)
	if err != nil {
		return s.odd(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(now)
	return nil
}

// put takes over an object; the caller holds mu.
func (s *store[T]) put(now T) {
	of := s.items[now.GetNamespace()]
	if of == nil {
		of = map[string]T{}
		s.items[now.GetNamespace()] = of
	}
	before := of[now.GetName()]
	of[now.GetName()] = now
	s.changed(before, now)
}

// Delete implements cache.ReflectorStore.
func (s *store[T]) Delete(o any) error {
	gone, err := s.kind.Keep(o)
	if err != nil {
		return s.odd(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(gone.GetNamespace(), gone.GetName())
	return nil
}

// remove forgets an object; the caller holds mu.
func (s *store[T]) remove(namespace, name string) {
	before, ok := s.items[namespace][name]
	if !ok {
		return
	}
	delete(s.items[namespace], name)
	if len(s.items[namespace]) == 0 {
		delete(s.items, namespace)
	}
	var none T
	s.changed(before, none)
}

// Replace implements cache.ReflectorStore: it takes over a whole list.
func (s *store[T]) Replace(list []any, _ string) error {
	listed := map[[2]string]bool{}
	kept := make([]T, 0, len(list))
	for _, o := range list {
		now, err := s.kind.Keep(o)
		if err != nil {
			return s.odd(err)
		}
		listed[[2]string{now.GetNamespace(), now.GetName()}] = true
		kept = append(kept, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(func(namespace, name string) bool { return !listed[[2]string{namespace, name}] })
	for _, now := range kept {
		before, known := s.items[now.GetNamespace()][now.GetName()]
		if known && now.GetResourceVersion() != "" && before.GetResourceVersion() == now.GetResourceVersion() && before.GetUID() == now.GetUID() {
			continue
		}
		s.put(now)
	}
	(*Mirror[T])(s).settle()
	return nil
}

// forget removes the objects that gone names; the caller holds mu.
func (s *store[T]) forget(gone func(namespace, name string) bool) {
	for namespace, of := range s.items {
		for name := range of {
			if gone(namespace, name) {
				s.remove(namespace, name)
			}
		}
	}
}

// settle ends the wait for the first list; the caller holds mu.
func (m *Mirror[T]) settle() {
	select {
	case <-m.settled:
	default:
		close(m.settled)
	}
}

// odd is an object that is not what was asked for.
func (s *store[T]) odd(err error) error {
	return fmt.Errorf("keeping an object of %s: %w", s.status.Resource, err)
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (s *store[T]) Resync() error { return nil }
