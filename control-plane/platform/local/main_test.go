package local

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fire = "default/fire"

// world is a Platform with nodes that do what they are told, and gateways that settle at
// once. Its time is a synctest bubble's.
type world struct {
	t      testing.TB
	p      *Platform
	events *event.Log
	routes *fakeRoutes
	file   string
	close  func()

	background sync.WaitGroup // what nodes tell by themselves

	mu        sync.Mutex
	connected map[string]bool
	running   map[string]map[string]*nodeapi.InstanceStatus // by node, then id
	// stuck nodes do not stop what they are told to.
	stuck bool
	sent  []*nodeapi.ControlMessage
	keeps map[string]*nodeapi.Keeps
}

// fakeRoutes are the gateways.
type fakeRoutes struct {
	mu     sync.Mutex
	settle func(context.Context) error
}

func (r *fakeRoutes) Settled(ctx context.Context) error {
	r.mu.Lock()
	settle := r.settle
	r.mu.Unlock()
	if settle == nil {
		return nil
	}
	return settle(ctx)
}

func newWorld(t testing.TB, file string) *world {
	w := &world{t: t, routes: &fakeRoutes{}, file: file, connected: map[string]bool{}, running: map[string]map[string]*nodeapi.InstanceStatus{}}
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

// open starts a control plane of what the file holds.
func (w *world) open() {
	w.t.Helper()
	w.events = &event.Log{}
	p, err := Open(w.file, w, w.routes, w.events, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.p = p
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { p.Run(ctx) })
	w.close = func() { cancel(); run.Wait(); w.background.Wait() }
}

// restart replaces the control plane; the nodes run on and have to join again.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.mu.Lock()
	clear(w.connected)
	w.mu.Unlock()
	w.open()
}

// inBubble runs f with a world in a bubble.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state", "functions.json")
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, file)) })
}

// Send implements Nodes: the node obeys.
func (w *world) Send(node string, m *nodeapi.ControlMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.connected[node] {
		return context.Canceled
	}
	w.sent = append(w.sent, m)
	switch k := m.GetKind().(type) {
	case *nodeapi.ControlMessage_Start:
		w.running[node][k.Start.GetId()] = &nodeapi.InstanceStatus{Id: k.Start.GetId(), Function: k.Start.GetFunction().GetName(), Phase: nodeapi.Phase_PHASE_STARTING}
	case *nodeapi.ControlMessage_Stop:
		if w.stuck {
			return nil
		}
		id := k.Stop.GetId()
		delete(w.running[node], id)
		p := w.p
		w.background.Go(func() { p.InstanceChanged(node, &nodeapi.InstanceStatus{Id: id, Phase: nodeapi.Phase_PHASE_STOPPED}) })
	}
	return nil
}

// Keeps implements Nodes.
func (w *world) Keeps() map[string]*nodeapi.Keeps { return w.keeps }

// stops are the ids that nodes were told to stop.
func (w *world) stops() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, m := range w.sent {
		if stop := m.GetStop(); stop != nil {
			ids = append(ids, stop.GetId())
		}
	}
	return ids
}

// World of the conformance suite.

func (w *world) Platform() platform.Platform { return w.p }

func (w *world) Deploy(f platform.Function) {
	w.t.Helper()
	if _, err := w.p.Apply([]platform.Function{f}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Deployed(f platform.Function) platform.Function { return f }

func (w *world) Delete(function string) {
	w.t.Helper()
	if err := w.p.Delete(function); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Join(node string) {
	w.mu.Lock()
	w.connected[node] = true
	if w.running[node] == nil {
		w.running[node] = map[string]*nodeapi.InstanceStatus{}
	}
	statuses := slices.Collect(maps.Values(w.running[node]))
	w.mu.Unlock()
	w.p.NodeJoined(node, statuses)
}

func (w *world) Leave(node string) {
	w.mu.Lock()
	delete(w.connected, node)
	w.mu.Unlock()
	w.p.NodeLeft(node)
}

func (w *world) Ready(in platform.Instance, address string) {
	w.report(in, nodeapi.Phase_PHASE_READY, address)
}

func (w *world) Fail(in platform.Instance) { w.report(in, nodeapi.Phase_PHASE_FAILED, "") }

func (w *world) Exit(in platform.Instance) { w.report(in, nodeapi.Phase_PHASE_STOPPED, "") }

func (w *world) report(in platform.Instance, phase nodeapi.Phase, address string) {
	s := &nodeapi.InstanceStatus{Id: in.ID, Function: in.Function, Phase: phase, Address: address}
	if phase != nodeapi.Phase_PHASE_READY {
		s.Reason, s.Message = "FunctionExited", "the program ended"
	}
	w.mu.Lock()
	if phase == nodeapi.Phase_PHASE_READY {
		w.running[in.Node][in.ID] = s
	} else {
		delete(w.running[in.Node], in.ID)
	}
	connected := w.connected[in.Node]
	w.mu.Unlock()
	if connected {
		w.p.InstanceChanged(in.Node, s)
	}
}

// Shorthands.

const address = "10.1.0.2:8080"

// fireFunction may be idle for 30 s, start in 20 s and answer in 60 s.
func fireFunction() platform.Function { return platformtest.Fire() }

func (w *world) activate(function, node string) platform.Instance {
	w.t.Helper()
	in, err := w.p.Activate(context.Background(), platform.Request{Function: function, Node: node})
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

// hot deploys fire and has it ready on the node, idle from now on.
func (w *world) hot(node string) platform.Instance {
	w.t.Helper()
	w.Join(node)
	w.Deploy(fireFunction())
	in := w.activate(fire, node)
	w.Ready(in, address)
	return w.now(in)
}

// now is the instance as State has it; its zero value when it is gone.
func (w *world) now(in platform.Instance) platform.Instance {
	for _, i := range w.p.State().Instances {
		if i.ID == in.ID {
			return i
		}
	}
	return platform.Instance{}
}

func (w *world) wantPhase(in platform.Instance, want platform.Phase) {
	w.t.Helper()
	if got := w.now(in).Phase; got != want {
		w.t.Errorf("%s is %q, want %q", in.ID, got, want)
	}
}
