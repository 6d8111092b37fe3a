package mirror

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Phase is how a mirror is.
type Phase string

// The phases of a mirror.
const (
	Opening   Phase = ""          // nothing was heard yet
	Following Phase = "Following" // it has all changes
	Absent    Phase = "Absent"    // the cluster has no such kind
	Denied    Phase = "Denied"    // the control plane may not read it
	Away      Phase = "Away"      // the API server does not answer, or not as it should
)

// Status says how a mirror is.
type Status struct {
	Resource string // as kubectl names it
	Optional bool
	Phase    Phase
	Message  string // what is wrong, and what to do
}

// OK says whether all is as it should be, as far as the cluster has the kind.
func (s Status) OK() bool {
	return s.Phase == Following || s.Optional && s.Phase == Absent
}

// observed is the source, whose failures are noted.
func (m *Mirror[T]) observed() cache.ListerWatcher {
	source := m.kind.Source
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := source.List(ctx, o)
			if err != nil { // the watch that follows says when all is well
				m.note(ctx, "list", err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := source.Watch(ctx, o)
			m.note(ctx, "watch", err)
			return w, err
		},
	}, source)
}

// note takes the outcome of a call.
func (m *Mirror[T]) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.status.Phase, m.status.Message = Following, ""
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		m.status.Phase, m.status.Message = Absent, "the cluster has no "+m.status.Resource
	case apierrors.IsForbidden(err):
		m.status.Phase, m.status.Message = Denied, m.denial(verb)
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return // it is listed anew
	default:
		m.status.Phase, m.status.Message = Away, fmt.Sprintf("cannot %s %s: %v", verb, m.status.Resource, err)
	}
	if m.status.Phase == Absent {
		(*store[T])(m).forget(func(string, string) bool { return true })
	}
	// What was there before a denial is kept, and a first denial settles nothing: an API server that has just started may deny
	// everything for a moment.
	switch m.status.Phase {
	case Denied:
		if m.denied.IsZero() {
			m.denied = time.Now()
		}
	case Following, Absent:
		m.denied = time.Time{}
	}
	if m.lacks() {
		m.settle()
	}
}

// lacks tells whether the kind is one that can do without, and is not to be had; the caller holds mu.
func (m *Mirror[T]) lacks() bool {
	return m.kind.Optional && (m.status.Phase == Absent || m.status.Phase == Denied && time.Since(m.denied) >= retryMost)
}

// denial names what the cluster's owner has to allow.
func (m *Mirror[T]) denial(verb string) string {
	return fmt.Sprintf("the control plane may not %s %s; allow its service account the verbs list and watch on resource %q of API group %q",
		verb, m.status.Resource, m.kind.Resource, m.kind.Group)
}
