package mirror_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server has nodes, and one watch at a time.
type server struct {
	mu      sync.Mutex
	err     error
	version int
	nodes   map[string]string // versions by name
	watcher *watch.FakeWatcher
	lists   int
}

func (s *server) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if s.err != nil {
		return nil, s.err
	}
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for name, version := range s.nodes {
		list.Items = append(list.Items, *node(name, version))
	}
	return list, nil
}

// asked is how often it was listed.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *server) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.watcher = watch.NewFakeWithChanSize(10, false)
	return s.watcher, nil
}

func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

// fail breaks the watch; until it is called with nil, all calls fail with err.
func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if s.watcher != nil {
		s.watcher.Stop()
		s.watcher = nil
	}
}

func node(name, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// rig is a mirror of a server's nodes, and what it told.
type rig struct {
	*server
	*mirror.Mirror[*corev1.Node]
	mu   sync.Mutex
	told []string
}

// inBubble runs f with a mirror of nodes a and b.
func inBubble(t *testing.T, optional bool, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{server: &server{version: 2, nodes: map[string]string{"a": "1", "b": "2"}}}
		keep := func(o any) (*corev1.Node, error) {
			n, ok := o.(*corev1.Node)
			if !ok {
				return nil, errors.New("no node")
			}
			return n, nil
		}
		r.Mirror = mirror.New(mirror.Kind[*corev1.Node]{Group: "example.com", Resource: "nodes", Optional: optional, Source: r.server, Keep: keep}, &r.mu, func(before, now *corev1.Node) {
			switch {
			case before == nil:
				r.told = append(r.told, "+"+now.Name)
			case now == nil:
				r.told = append(r.told, "-"+before.Name)
			default:
				r.told = append(r.told, now.Name+" "+before.ResourceVersion+">"+now.ResourceVersion)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		f(t, r)
	})
}

// expect compares what was told since the last call, whose order matters as little as a
// list's does, and what there is.
func (r *rig) expect(t *testing.T, told []string, names ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.told)
	if d := cmp.Diff(told, r.told); d != "" {
		t.Errorf("told: -want +got\n%s", d)
	}
	r.told = nil
	if d := cmp.Diff(names, slices.Sorted(maps.Keys(r.Of("")))); d != "" {
		t.Errorf("has: -want +got\n%s", d)
	}
}

func (r *rig) expectPhase(t *testing.T, want mirror.Phase, message string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.Status(); s.Phase != want || s.Message != message || s.Resource != "nodes.example.com" {
		t.Errorf("status %+v, want %s: %s", s, want, message)
	}
}

func (r *rig) isSettled() bool {
	select {
	case <-r.Settled():
		return true
	default:
		return false
	}
}

func TestEachChangeIsTold(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		r.expect(t, []string{"+a", "+b"}, "a", "b")
		r.expectPhase(t, mirror.Following, "")
		r.watcher.Add(node("c", "3"))
		r.watcher.Modify(node("a", "4"))
		r.watcher.Delete(node("b", "5"))
		r.expect(t, []string{"+c", "-b", "a 1>4"}, "a", "c")
	})
}

// After a break only what is different is told.
func TestABreak(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		r.expect(t, []string{"+a", "+b"}, "a", "b")
		r.fail(apierrors.NewInternalError(errors.New("broken")))
		time.Sleep(time.Minute)
		r.expect(t, nil, "a", "b")
		r.expectPhase(t, mirror.Away, "cannot list nodes.example.com: Internal error occurred: broken")
		r.server.nodes = map[string]string{"b": "2", "c": "9"}
		r.fail(nil)
		time.Sleep(5 * time.Second)
		r.expect(t, []string{"+c", "-a"}, "b", "c")
		r.expectPhase(t, mirror.Following, "")
	})
}

func TestAnAbsentKind(t *testing.T) {
	inBubble(t, true, func(t *testing.T, r *rig) {
		r.expect(t, []string{"+a", "+b"}, "a", "b")
		r.fail(apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, ""))
		time.Sleep(time.Minute)
		r.expect(t, []string{"-a", "-b"})
		r.expectPhase(t, mirror.Absent, "the cluster has no nodes.example.com")
		before := r.asked()
		time.Sleep(time.Minute)
		if n := r.asked() - before; n > 7 {
			t.Errorf("it was asked for %d times in a minute", n)
		}
		r.fail(nil)
		time.Sleep(20 * time.Second)
		r.expect(t, []string{"+a", "+b"}, "a", "b")
	})
}

func TestADeniedKind(t *testing.T) {
	for _, optional := range []bool{true, false} {
		inBubble(t, optional, func(t *testing.T, r *rig) {
			r.expect(t, []string{"+a", "+b"}, "a", "b")
			r.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no rule")))
			time.Sleep(time.Minute)
			r.expect(t, nil, "a", "b") // an API server that has just started denies a lot
			r.expectPhase(t, mirror.Denied, `the control plane may not list nodes.example.com; allow its service account the verbs list and watch on resource "nodes" of API group "example.com"`)
		})
	}
}

// An API server that has just started may deny everything for a moment, which is not to have nothing.
func TestADenialPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{err: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no rule")), nodes: map[string]string{"a": "1"}}
		r := &rig{server: s}
		r.Mirror = mirror.New(mirror.Kind[*corev1.Node]{Resource: "nodes", Optional: true, Source: s,
			Keep: func(o any) (*corev1.Node, error) { return o.(*corev1.Node), nil }}, &r.mu, func(_, _ *corev1.Node) {})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		defer running.Wait()
		defer cancel()
		time.Sleep(time.Second)
		if r.isSettled() {
			t.Error("a first denial settles it")
		}
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		time.Sleep(2 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.isSettled() || r.Get("", "a") == nil {
			t.Error("it does not have what there is")
		}
	})
}

// Nobody waits for what may be missing, or for long for what may be denied.
func TestSettling(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for lacks, optional := range map[error]bool{apierrors.NewNotFound(nodes, ""): true, apierrors.NewForbidden(nodes, "", nil): true,
		apierrors.NewNotFound(nodes, "other"): false, apierrors.NewForbidden(nodes, "other", nil): false} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{err: lacks}
			r := &rig{server: s}
			r.Mirror = mirror.New(mirror.Kind[*corev1.Node]{Resource: "nodes", Optional: optional, Source: s, Keep: func(o any) (*corev1.Node, error) { return o.(*corev1.Node), nil }}, &r.mu, func(_, _ *corev1.Node) {})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { r.Run(ctx) })
			defer running.Wait()
			defer cancel()
			time.Sleep(time.Minute)
			if got := r.isSettled(); got != optional {
				t.Errorf("optional %t: settled %t", optional, got)
			}
		})
	}
}
