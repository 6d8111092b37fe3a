package sandboxes_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// gatedRig is a node with a pod whose function runs ahead.
type gatedRig struct {
	*podRig
	stopped chan string
	opened  chan string
	events  chan *nodeapi.Event
	needs   *counter
}

// counter notes how often needs are brought.
type counter struct{ brought atomic.Int32 }

func (c *counter) Bring(sandboxes.Sandbox) (sandboxes.Need, error) {
	c.brought.Add(1)
	return sandboxes.Need{}, nil
}
func (*counter) Release(string) {}

func newGatedRig(t *testing.T) *gatedRig {
	t.Helper()
	r := &gatedRig{podRig: newPodRig(t), stopped: make(chan string, 8), opened: make(chan string, 8), events: make(chan *nodeapi.Event, 8), needs: &counter{}}
	r.function.RunsAhead, r.function.OneAtATime = true, true
	r.configure.Callers = []netip.Addr{netip.MustParseAddr("10.1.0.7")}
	r.configure.Stop = func(_ context.Context, sandbox string) error { r.stopped <- sandbox; return nil }
	r.configure.Open = func(_ context.Context, sandbox string) error { r.opened <- sandbox; return nil }
	r.configure.Event = func(e *nodeapi.Event) { r.events <- e }
	r.configure.Providers = []sandboxes.Provider{r.needs}
	r.reopen()
	return r
}

// reopen has another daemon be there in place of the one before.
func (r *gatedRig) reopen() {
	r.t.Helper()
	r.Close()
	r.open()
}

// made has the pod's container be made, and closed.
func (r *gatedRig) made(container string) *nodeapi.DescribeResponse {
	r.t.Helper()
	d, err := r.Describe(r.t.Context(), &nodeapi.DescribeRequest{Sandbox: container, Pod: pod("fire-x", container)})
	if err != nil {
		r.t.Fatal(err)
	}
	if d.GetGate() != nil {
		if _, err := r.Closed(r.t.Context(), &nodeapi.ClosedRequest{Sandbox: container, Pod: pod("fire-x", container)}); err != nil {
			r.t.Fatal(err)
		}
	}
	return d
}

func (r *gatedRig) wantServing(want bool) {
	r.t.Helper()
	if ids, _ := r.Serving(r.function.GetName()); slices.Contains(ids, one) != want {
		r.t.Errorf("it takes requests: %t, want %t", !want, want)
	}
}

func (r *gatedRig) wantStopped() {
	r.t.Helper()
	select {
	case id := <-r.stopped:
		if id != one {
			r.t.Errorf("%s is stopped", id)
		}
	case <-time.After(patience):
		r.t.Fatal("its program goes on")
	}
}

func gatedPod(s *nodeapi.InstanceStatus) *nodeapi.InstanceStatus {
	s.Gate = &nodeapi.Gate{Container: "main", Port: 8080}
	return s
}

// The sandbox of a pod is closed before the container with the function's program is made. One at a time has it: while another
// daemon may have requests for it, none goes there before its turn.
func TestAPodIsClosed(t *testing.T) {
	r := newGatedRig(t)
	alone := make(chan struct{})
	r.configure.Alone = alone
	r.reopen()
	address, _ := listen(t, http.StatusOK)
	r.has(gatedPod(podStarting(address)))
	if d := r.made("init"); d.GetGate() != nil {
		t.Errorf("for another container it is closed by %v", d.GetGate())
	}
	d := r.made("main")
	if g := d.GetGate(); g.GetPort() != 8080 || !slices.Equal(g.GetCallers(), []string{"10.1.0.7"}) || !d.GetStreams() {
		t.Errorf("it is closed by %v, streams %t", g, d.GetStreams())
	}
	wantReady(t, <-r.wait(), at(address))
	r.wantServing(true)
	if r.IsClosed(one) {
		t.Error("it counts as closed while there is another daemon")
	}
	close(alone)
	if !r.IsClosed(one) {
		t.Error("it does not count as closed")
	}
}

// A program that cannot be had back is ended. Its pod takes requests again when the kubelet has started it again, also if the cluster
// has not noticed.
func TestAPodsProgramIsReplaced(t *testing.T) {
	r := newGatedRig(t)
	address, _ := listen(t, http.StatusOK)
	r.has(gatedPod(podStarting(address)))
	r.made("main")
	r.has(gatedPod(podReady(address)))
	r.wantServing(true)
	r.Replace(one)
	r.wantStopped()
	r.wantServing(false)
	r.has(gatedPod(podReady(address))) // what the cluster says of the program before
	r.wantServing(false)
	waits := r.wait()
	select {
	case a := <-waits:
		t.Fatalf("it is ready: %v", a)
	default:
	}
	r.made("main")
	wantReady(t, <-waits, at(address))
	r.wantServing(true)
	if !r.IsClosed(one) {
		t.Error("it is not closed any more")
	}
}

// Behind a sidecar nobody but the cluster can say when a program that was started again is ready. What it says of the one before does
// not count.
func TestAPodsProgramIsReplacedBehindASidecar(t *testing.T) {
	for name, noticed := range map[string]bool{"the cluster notices": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newGatedRig(t)
				said := func(s *nodeapi.InstanceStatus) { s.MeshSni = "sni"; r.has(gatedPod(s)) }
				const address = "10.0.0.3:80"
				said(podStarting(address))
				r.made("main")
				said(podReady(address))
				r.wantServing(true)
				r.Replace(one)
				r.wantStopped()
				said(podReady(address))
				r.made("main")
				said(podReady(address))
				r.wantServing(false)
				if noticed {
					said(podStarting(address))
					said(podReady(address))
				} else {
					time.Sleep(11 * time.Second)
				}
				r.wantServing(true)
				r.Close()
			})
		})
	}
}

// A daemon does not know what the programs of closed sandboxes are at work on that it finds. Each is replaced when no other daemon has
// it any more, and nothing of the pod is touched before.
func TestClosedPodsThatADaemonFinds(t *testing.T) {
	r := newGatedRig(t)
	address, _ := listen(t, http.StatusOK)
	r.has(gatedPod(podStarting(address)))
	r.made("main")
	before := r.needs.brought.Load()
	alone := make(chan struct{})
	r.configure.Alone, r.configure.Succeeds = alone, true
	r.reopen()
	r.has(gatedPod(podReady(address)))
	r.wantServing(false)
	waits := r.wait()
	select {
	case id := <-r.stopped:
		t.Errorf("%s is stopped while another daemon has it", id)
	case a := <-waits:
		t.Errorf("it is ready: %v", a)
	default:
	}
	if n := r.needs.brought.Load(); n != before {
		t.Errorf("what it needs was brought %d times, want %d", n, before)
	}
	close(alone)
	r.wantStopped()
	if n := r.needs.brought.Load(); n != before+1 {
		t.Errorf("what it needs was brought %d times, want %d", n, before+1)
	}
	r.made("main")
	wantReady(t, <-waits, at(address))
}

// A pod of whose sandbox no shim knows that it is closed is not: it was started while no daemon was there.
func TestAClosedPodWithoutAShim(t *testing.T) {
	r := newGatedRig(t)
	address, _ := listen(t, http.StatusOK)
	r.has(gatedPod(podStarting(address)))
	r.made("main")
	r.configure.Stop = func(context.Context, string) error { return errors.New("no shim") }
	r.reopen()
	r.has(gatedPod(podReady(address)))
	wantReady(t, <-r.wait(), at(address))
	if r.wantServing(true); r.IsClosed(one) {
		t.Error("it counts as closed")
	}
	r.reopen()
	r.has(gatedPod(podReady(address)))
	r.wantServing(true) // nothing is noted of it
}

// A pod whose function may run ahead no more is asked by everybody again.
func TestAClosedPodIsOpened(t *testing.T) {
	r := newGatedRig(t)
	address, _ := listen(t, http.StatusOK)
	r.has(gatedPod(podStarting(address)))
	r.made("main")
	r.function.RunsAhead = false
	r.has(podReady(address))
	select {
	case id := <-r.opened:
		if id != one || r.IsClosed(one) {
			t.Errorf("%s is opened; closed: %t", id, r.IsClosed(one))
		}
	case <-time.After(patience):
		t.Fatal("it stays closed")
	}
	r.wantServing(true)
	r.reopen()
	r.has(podReady(address))
	r.wantServing(true) // and its program is left alone
	if len(r.stopped) > 0 {
		t.Error("its program is stopped")
	}
}

// Why a function works in its turn only is said to its owner, once for each pod.
func TestPodsThatAreOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		made func(*gatedRig)
		pod  func(*nodeapi.InstanceStatus)
		want string
	}{
		"as the control plane says":   {pod: func(s *nodeapi.InstanceStatus) { s.Gate.Open = "its pods have another container, log" }, want: "another container, log"},
		"it was there before":         {want: "start the pod again"},
		"its inputs are in a store":   {made: func(r *gatedRig) { r.function.HasInput, r.function.InputTemplate = true, "s3://a/b"; r.made("main") }, want: "its inputs are objects of a store"},
		"the shim could not close it": {made: func(r *gatedRig) { r.refused("no rules here") }, want: "no rules here"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGatedRig(t)
			status := gatedPod(podStarting("127.0.0.1:80"))
			if tt.pod != nil {
				tt.pod(status)
			}
			r.has(status)
			if tt.made != nil {
				tt.made(r)
			}
			for range 2 {
				status.Phase = nodeapi.Phase_PHASE_READY
				r.has(status)
			}
			var said []string
			for len(r.events) > 0 {
				said = append(said, (<-r.events).GetMessage())
			}
			if len(said) == 0 || !strings.Contains(said[0], tt.want) || len(slices.Compact(said)) > 1 {
				t.Errorf("its owner hears %q, want %q", said, tt.want)
			}
			if r.IsClosed(one) {
				t.Error("it is closed")
			}
		})
	}
}

// refused has the shim say why the sandbox is not closed.
func (r *gatedRig) refused(why string) {
	r.t.Helper()
	of := pod("fire-x", "main")
	if d, err := r.Describe(r.t.Context(), &nodeapi.DescribeRequest{Sandbox: "main", Pod: of}); err != nil || d.GetGate() == nil {
		r.t.Fatalf("%v, %v", d, err)
	}
	if _, err := r.Closed(r.t.Context(), &nodeapi.ClosedRequest{Sandbox: "main", Pod: of, Open: why}); err != nil {
		r.t.Fatal(err)
	}
}
