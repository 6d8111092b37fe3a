package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// handler writes down what it hears, as one line each.
type handler struct {
	activate func(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage

	mu    sync.Mutex
	heard []string
	more  chan struct{} // closed and replaced at each line
}

func (h *handler) hear(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = append(h.heard, fmt.Sprintf(format, args...))
	close(h.more)
	h.more = make(chan struct{})
}

// await returns all that was heard once the last line is there.
func (h *handler) await(t *testing.T, last string) []string {
	t.Helper()
	late := time.After(patience)
	for {
		h.mu.Lock()
		heard, more := slices.Clone(h.heard), h.more
		h.mu.Unlock()
		if slices.Contains(heard, last) {
			return heard
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("heard %q, not %q", heard, last)
		}
	}
}

func (h *handler) Joined(node string, r *nodeapi.Register) {
	h.hear("%s joined with %s", node, r.GetVersion())
}
func (h *handler) Left(node string) { h.hear("%s left", node) }
func (h *handler) Instance(node string, s *nodeapi.InstanceStatus) {
	h.hear("%s: instance %s", node, s.GetId())
}
func (h *handler) Load(node string, inFlight map[string]int32) { h.hear("%s: load %v", node, inFlight) }
func (h *handler) Event(node string, e *nodeapi.Event)         { h.hear("%s: event %s", node, e.GetReason()) }
func (h *handler) Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
	return h.activate(ctx, node, a)
}

// controlPlane serves nodes over mutual TLS.
type controlPlane struct {
	*nodes.Server
	handler   *handler
	authority *pki.Authority
	listener  *bufconn.Listener
	lasts     time.Duration // a node's stream, at most
}

func serve(t *testing.T) *controlPlane {
	t.Helper()
	authority, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cp := &controlPlane{Server: nodes.New(slog.New(slog.DiscardHandler)), handler: &handler{more: make(chan struct{})}, authority: authority, listener: bufconn.Listen(1 << 16), lasts: patience}
	cp.SetHandler(cp.handler)
	serverTLS, _, err := peertls.Load(cp.files(t, "control-plane"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(serverTLS)), grpc.WaitForHandlers(true))
	nodeapi.RegisterControlPlaneServer(g, cp.Server)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(cp.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { g.Stop(); wg.Wait(); cp.Wait() })
	return cp
}

func (cp *controlPlane) files(t *testing.T, name string) (cert, key, ca string) {
	t.Helper()
	f, err := cp.authority.Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	return f.Cert, f.Key, f.CA
}

func (cp *controlPlane) dial(t *testing.T, creds credentials.TransportCredentials) nodeapi.ControlPlaneClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:control-plane", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return cp.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return nodeapi.NewControlPlaneClient(conn)
}

// node is one stream of a node.
type node struct {
	t      *testing.T
	stream nodeapi.ControlPlane_ConnectClient
	end    context.CancelFunc
}

// connect opens a stream of the node called name, which registers with a version.
func (cp *controlPlane) connect(t *testing.T, name, version string) *node {
	t.Helper()
	return cp.connectAs(t, name, &nodeapi.Register{Version: version})
}

func (cp *controlPlane) connectAs(t *testing.T, name string, r *nodeapi.Register) *node {
	t.Helper()
	_, client, err := peertls.Load(cp.files(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return open(t, cp.dial(t, credentials.NewTLS(peertls.ClientFor(client, "control-plane"))), cp.lasts,
		&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: r}})
}

func open(t *testing.T, client nodeapi.ControlPlaneClient, lasts time.Duration, first *nodeapi.NodeMessage) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	t.Cleanup(cancel)
	stream, err := client.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, stream: stream, end: cancel}
	n.send(first)
	return n
}

func (n *node) send(m *nodeapi.NodeMessage) {
	n.t.Helper()
	if err := n.stream.Send(m); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) receive() *nodeapi.ControlMessage {
	n.t.Helper()
	m, err := n.stream.Recv()
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

// receiveEnd returns how the stream ended.
func (n *node) receiveEnd() error {
	for {
		if _, err := n.stream.Recv(); err != nil {
			return err
		}
	}
}

func functions(names ...string) *nodeapi.Functions {
	f := &nodeapi.Functions{}
	for _, name := range names {
		f.Functions = append(f.Functions, &nodeapi.Function{Name: name})
	}
	return f
}

func (n *node) wantFunctions(names ...string) {
	n.t.Helper()
	m := n.receive()
	if m.GetFunctions() == nil {
		n.t.Fatalf("got %v, want functions", m)
	}
	var got []string
	for _, f := range m.GetFunctions().GetFunctions() {
		got = append(got, f.GetName())
	}
	if d := cmp.Diff(names, got); d != "" {
		n.t.Error(d)
	}
}

func TestANodesNameIsItsCertificates(t *testing.T) {
	cp := serve(t)
	n := cp.connect(t, "edge-1", "v1")
	n.wantFunctions()
	n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Instance{Instance: &nodeapi.InstanceStatus{Id: "fire-1"}}})
	n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{InFlight: map[string]int32{"default/fire": 2}}}})
	n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: "InputNotFound"}}})
	cp.handler.await(t, "edge-1: event InputNotFound")
	if d := cmp.Diff([]string{"edge-1"}, names(cp)); d != "" {
		t.Error(d)
	}
	n.end()
	want := []string{"edge-1 joined with v1", "edge-1: instance fire-1", "edge-1: load map[default/fire:2]", "edge-1: event InputNotFound", "edge-1 left"}
	if d := cmp.Diff(want, cp.handler.await(t, "edge-1 left")); d != "" {
		t.Error(d)
	}
	if got := names(cp); len(got) != 0 {
		t.Errorf("still connected: %v", got)
	}
}

func names(cp *controlPlane) []string {
	var all []string
	for name := range cp.Connected() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestStrangersAreRefused(t *testing.T) {
	cp, others := serve(t), serve(t)
	_, client, err := peertls.Load(others.files(t, "edge-1"))
	if err != nil {
		t.Fatal(err)
	}
	client.InsecureSkipVerify = true // the stranger does not mind whom it talks to
	register := &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: &nodeapi.Register{}}}
	for name, creds := range map[string]credentials.TransportCredentials{
		"another authority's": credentials.NewTLS(peertls.ClientFor(client, "control-plane")),
		"without TLS":         insecure.NewCredentials(),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := cp.dial(t, creds).Connect(ctx)
		if err == nil {
			_ = stream.Send(register) // it fails here or below
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if len(cp.handler.heard) != 0 {
		t.Errorf("heard %q", cp.handler.heard)
	}
}

func TestAStreamBeginsWithARegistration(t *testing.T) {
	cp := serve(t)
	_, client, err := peertls.Load(cp.files(t, "edge-1"))
	if err != nil {
		t.Fatal(err)
	}
	n := open(t, cp.dial(t, credentials.NewTLS(peertls.ClientFor(client, "control-plane"))), patience, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{}}})
	if _, err := n.stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the stream ended with %v", err)
	}
	if len(cp.handler.heard) != 0 {
		t.Errorf("heard %q", cp.handler.heard)
	}
}

func TestNodesAreToldTheFunctions(t *testing.T) {
	cp := serve(t)
	cp.SetFunctions(functions("default/a"))
	one := cp.connect(t, "edge-1", "v1")
	one.wantFunctions("default/a")
	cp.SetFunctions(functions("default/a", "default/b"))
	other := cp.connect(t, "edge-2", "v1")
	one.wantFunctions("default/a", "default/b")
	other.wantFunctions("default/a", "default/b")
	cp.SetFunctions(functions())
	one.wantFunctions()
	other.wantFunctions()
}

// changes receives a change whole, and returns what is in it and the size of its largest part.
func (n *node) changes() (all *nodeapi.FunctionChanges, largest int) {
	n.t.Helper()
	for all = (&nodeapi.FunctionChanges{}); ; {
		m := n.receive()
		if m.GetFunctionChanges() == nil {
			n.t.Fatalf("got %v, want changes", m)
		}
		largest = max(largest, proto.Size(m))
		more := m.GetFunctionChanges().GetMore()
		proto.Merge(all, m.GetFunctionChanges())
		if all.More = more; !more {
			return all, largest
		}
	}
}

// many are functions of some 700 bytes each.
func many(n int) *nodeapi.Functions {
	f := &nodeapi.Functions{Stores: []*nodeapi.Store{{Name: "edge"}}}
	for i := range n {
		f.Functions = append(f.Functions, &nodeapi.Function{Name: fmt.Sprintf("ns%d/f%d", i%100, i), Image: strings.Repeat("i", 600)})
	}
	return f
}

// 10,000 functions neither exceed what gRPC takes, nor are they all told again when one changes.
func TestAttackManyFunctionsFitTheNodesMessages(t *testing.T) {
	const functionsOfAll = 10_000
	cp := serve(t)
	cp.SetDestinations([]*nodeapi.Destination{{Name: "orders"}})
	cp.SetFunctions(many(functionsOfAll))
	n := cp.connectAs(t, "edge", &nodeapi.Register{Parts: true})
	all, largest := n.changes()
	if len(all.GetFunctions()) != functionsOfAll || len(all.GetStores()) != 1 || len(all.GetDestinations()) != 1 || largest > 512<<10 {
		t.Errorf("at first %d functions, %d stores, parts of at most %d bytes", len(all.GetFunctions()), len(all.GetStores()), largest)
	}
	next := many(functionsOfAll)
	next.Functions[7] = &nodeapi.Function{Name: next.Functions[7].GetName(), Generation: 2}
	next.Functions = next.Functions[:functionsOfAll-1]
	cp.SetFunctions(many(functionsOfAll)) // nothing is different, and nothing is told
	cp.SetFunctions(next)
	change, size := n.changes()
	if len(change.GetFunctions()) != 1 || change.GetFunctions()[0].GetGeneration() != 2 || len(change.GetRemoved()) != 1 || size > 1000 {
		t.Errorf("a change of one, and one less: %d functions, %d removed, %d bytes", len(change.GetFunctions()), len(change.GetRemoved()), size)
	}
	cp.SetFunctions(&nodeapi.Functions{})
	if change, size := n.changes(); len(change.GetRemoved()) != functionsOfAll-1 || len(change.GetStores()) != 0 || len(change.GetDestinations()) != 1 || size > 512<<10 {
		t.Errorf("without functions: %d removed, parts of at most %d bytes", len(change.GetRemoved()), size)
	}
}

// One namespace may have many functions of the same pods, and many triggers.
func TestAttackManyInstancesAndTriggersFitTheNodesMessages(t *testing.T) {
	const most = 30_000
	instances, triggers := &nodeapi.Instances{}, &nodeapi.Triggers{}
	for i := range most {
		instances.Instances = append(instances.Instances, &nodeapi.InstanceStatus{Id: fmt.Sprint(i), Function: strings.Repeat("f", 127), Address: "10.0.0.1:8080"})
		instances.Volumes = append(instances.Volumes, &nodeapi.Volumes{Id: fmt.Sprint(i), Store: strings.Repeat("s", 63)})
		instances.Jobs = append(instances.Jobs, &nodeapi.Job{Id: fmt.Sprint(i), Input: strings.Repeat("i", 127)})
		triggers.Triggers = append(triggers.Triggers, &nodeapi.Trigger{Function: fmt.Sprint(i), Input: strings.Repeat("i", 127)})
	}
	cp := serve(t)
	n := cp.connectAs(t, "edge", &nodeapi.Register{Parts: true})
	n.changes()
	cp.handler.await(t, "edge joined with ")
	for _, m := range []*nodeapi.ControlMessage{
		{Kind: &nodeapi.ControlMessage_Instances{Instances: instances}},
		{Kind: &nodeapi.ControlMessage_Triggers{Triggers: triggers}},
	} {
		if err := cp.Send("edge", m); err != nil {
			t.Fatal(err)
		}
		got, more := &nodeapi.ControlMessage{}, true
		for parts := 0; more; parts++ {
			part := n.receive()
			if size := proto.Size(part); size > 512<<10 {
				t.Fatalf("a part of %d bytes", size)
			}
			more = part.GetInstances().GetMore() || part.GetTriggers().GetMore()
			if parts == 0 {
				got = part
				continue
			}
			proto.Merge(got, part)
		}
		if got.GetInstances() != nil {
			got.GetInstances().More = false
		} else {
			got.GetTriggers().More = false
		}
		if !proto.Equal(got, m) {
			t.Errorf("the parts of a message of %d bytes are not the whole", proto.Size(m))
		}
	}
}

func TestASecondStreamReplacesTheFirst(t *testing.T) {
	cp := serve(t)
	first := cp.connect(t, "edge-1", "v1")
	first.wantFunctions()
	second := cp.connect(t, "edge-1", "v2")
	second.wantFunctions()
	if err := first.receiveEnd(); status.Code(err) != codes.Aborted || status.Convert(err).Message() != "the node opened another stream" {
		t.Errorf("the first stream ended with %v", err)
	}
	if err := cp.Send("edge-1", stop("fire-1")); err != nil {
		t.Fatal(err)
	}
	if m := second.receive(); m.GetStop().GetId() != "fire-1" {
		t.Errorf("the second stream got %v", m)
	}
	second.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{}}})
	want := []string{"edge-1 joined with v1", "edge-1 left", "edge-1 joined with v2", "edge-1: load map[]"}
	if d := cmp.Diff(want, cp.handler.await(t, "edge-1: load map[]")); d != "" {
		t.Error(d)
	}
}

// observer tells what it heard.
type observer chan string

func (o observer) Came(node, process string) { o <- node + " " + process + " came" }
func (o observer) Went(node, process string) { o <- node + " " + process + " went" }
func (o observer) RoundTrips(node string, m *nodeapi.RoundTrips) {
	o <- fmt.Sprintf("%s: %d round trips", node, len(m.GetMeasured()))
}
func (o observer) Signals(node, process string, m *nodeapi.Signals) {
	o <- fmt.Sprintf("%s %s: %d signals", node, process, len(m.GetFunctions()))
}

// Both daemons of a node tell of their requests, but only one of them how far others are.
func TestWhatDaemonsMeasure(t *testing.T) {
	cp := serve(t)
	heard := make(observer, 16)
	cp.SetObserver(heard)
	measure := func(n *node) {
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_RoundTrips{RoundTrips: &nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{{}}}}})
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Signals{Signals: &nodeapi.Signals{}}})
	}
	want := func(all ...string) {
		t.Helper()
		for _, line := range all {
			if got := <-heard; got != line {
				t.Errorf("heard %q, want %q", got, line)
			}
		}
	}
	before := cp.connectAs(t, "edge-1", &nodeapi.Register{Process: "a"})
	want("edge-1 a came")
	measure(before)
	want("edge-1: 1 round trips", "edge-1 a: 0 signals")
	after := cp.connectAs(t, "edge-1", &nodeapi.Register{Process: "b"})
	want("edge-1 b came")
	measure(before)
	want("edge-1 a: 0 signals")
	measure(after)
	want("edge-1: 1 round trips", "edge-1 b: 0 signals")
	before.end()
	want("edge-1 a went")
	after.end()
	want("edge-1 b went")
}

// wallet tells what it heard of unused connections.
type wallet chan string

func (w wallet) Unused(node, process string, newest bool, m *nodeapi.Unused) {
	w <- fmt.Sprintf("%s %s %d %t", node, process, m.GetId(), newest)
}
func (w wallet) Went(node, process string) { w <- node + " " + process + " went" }

// Each daemon of a node says what it holds, and gets its own answer.
func TestWhatDaemonsHoldAndMay(t *testing.T) {
	cp := serve(t)
	heard := make(wallet, 16)
	cp.SetBudget(heard)
	says := func(n *node, id int64, want string) {
		t.Helper()
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Unused{Unused: &nodeapi.Unused{Id: id}}})
		if got := <-heard; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	before := cp.connectAs(t, "edge-1", &nodeapi.Register{Process: "a"})
	before.wantFunctions()
	says(before, 1, "edge-1 a 1 true")
	after := cp.connectAs(t, "edge-1", &nodeapi.Register{Process: "b"})
	after.wantFunctions()
	says(after, 1, "edge-1 b 1 true")
	says(before, 2, "edge-1 a 2 false")
	for id, process := range []string{"a", "b", "c"} {
		err := cp.SendTo("edge-1", process, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Allowances{Allowances: &nodeapi.Allowances{Id: int64(id)}}})
		if (err != nil) != (process == "c") {
			t.Errorf("%s: %v", process, err)
		}
	}
	if a, b := before.receive().GetAllowances(), after.receive().GetAllowances(); a.GetId() != 0 || a == nil || b.GetId() != 1 {
		t.Errorf("told %v and %v", a, b)
	}
	before.end()
	if got := <-heard; got != "edge-1 a went" {
		t.Errorf("heard %q", got)
	}
	after.end()
	<-heard
}

// While a daemon is updated the node has two. The old one gets the answers to its own
// questions, and word of the instances; all else is the new one's. What both have in their
// hands counts.
func TestTwoDaemonsOfANode(t *testing.T) {
	cp := serve(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	cp.handler.activate = func(_ context.Context, _ string, a *nodeapi.Activate) *nodeapi.ControlMessage {
		close(asked)
		<-answer
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{Request: a.GetRequest()}}}
	}
	load := func(n *node, inFlight map[string]int32) {
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{InFlight: inFlight}}})
	}
	before := cp.connectAs(t, "edge-1", &nodeapi.Register{Version: "v1", Process: "a", PeerAddress: "10.0.0.1:1"})
	before.wantFunctions()
	load(before, map[string]int32{"default/fire": 1})
	cp.handler.await(t, "edge-1: load map[default/fire:1]")
	before.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: "1"}}})
	<-asked
	after := cp.connectAs(t, "edge-1", &nodeapi.Register{Version: "v2", Process: "b", PeerAddress: "10.0.0.2:1"})
	after.wantFunctions()
	load(after, map[string]int32{"default/fire": 1, "default/smoke": 1})
	cp.handler.await(t, "edge-1: load map[default/fire:2 default/smoke:1]")
	if got := cp.Connected()["edge-1"].GetPeerAddress(); got != "10.0.0.2:1" {
		t.Errorf("others reach the node at %s", got)
	}
	instances := &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{}}}
	for _, m := range []*nodeapi.ControlMessage{instances, {Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{}}}} {
		if err := cp.Send("edge-1", m); err != nil {
			t.Fatal(err)
		}
	}
	close(answer)
	if before.receive().GetInstances() == nil || before.receive().GetBound() == nil {
		t.Error("the old daemon did not hear of its instances and then its answer")
	}
	if after.receive().GetInstances() == nil || after.receive().GetExpect() == nil {
		t.Error("the new daemon did not hear of all")
	}
	before.end()
	cp.handler.await(t, "edge-1: load map[default/fire:1 default/smoke:1]")
	after.end()
	heard := cp.handler.await(t, "edge-1 left")
	if n := slices.IndexFunc(heard, func(line string) bool { return line == "edge-1 left" }); n != len(heard)-1 {
		t.Errorf("the node left with the first: %q", heard)
	}
}

// However the streams of a node overlap, the handler sees one life after the other.
func TestANodesLivesDoNotOverlap(t *testing.T) {
	cp := serve(t)
	var came, wg sync.WaitGroup
	const streams = 20
	for i := range streams {
		n := cp.connect(t, "edge-1", fmt.Sprint(i))
		came.Add(1)
		wg.Go(func() {
			_, err := n.stream.Recv() // what it is told or, if another one came after it, its end
			came.Done()
			if err == nil {
				_ = n.receiveEnd()
			}
		})
		if i%3 == 0 {
			n.end()
		}
	}
	came.Wait()
	last := cp.connect(t, "edge-1", "last")
	last.wantFunctions()
	heard := cp.handler.await(t, "edge-1 joined with last")
	for i, line := range heard {
		if isLeft := line == "edge-1 left"; isLeft != (i%2 == 1) {
			t.Fatalf("two lives overlap: %q", heard)
		}
	}
	last.end()
	wg.Wait()
}

func stop(id string) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Stop{Stop: &nodeapi.StopInstance{Id: id}}}
}

// A node that takes nothing is cut off, although a message to it hangs, and begins anew.
func TestASlowNodeIsCutOff(t *testing.T) {
	cp := serve(t)
	slow := cp.connect(t, "edge-1", "v1")
	cp.handler.await(t, "edge-1 joined with v1")
	late := time.After(patience)
	for err := error(nil); ; err = cp.Send("edge-1", stop("some instance with a long name")) {
		if errors.Is(err, nodes.ErrNotConnected) {
			break
		}
		select {
		case <-late:
			t.Fatal("the node still counts as connected")
		default:
		}
	}
	cp.handler.await(t, "edge-1 left")
	if err := slow.receiveEnd(); status.Convert(err).Message() != "the node does not take its messages" {
		t.Errorf("the stream ended with %v", err)
	}
	cp.connect(t, "edge-1", "v2").wantFunctions()
}

// A node gets an instance to start before the request that is bound to it.
func TestMessagesKeepTheirOrder(t *testing.T) {
	cp := serve(t)
	cp.handler.activate = func(_ context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
		start := &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Start{Start: &nodeapi.StartInstance{Id: a.GetFunction()}}}
		if err := cp.Send(node, start); err != nil {
			t.Error(err)
		}
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{Request: a.GetRequest(), Instance: a.GetFunction()}}}
	}
	n := cp.connect(t, "edge-1", "v1")
	n.wantFunctions()
	for i := range 100 {
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: fmt.Sprint(i), Function: fmt.Sprint("f", i)}}})
	}
	started, bound := map[string]bool{}, 0
	for range 200 {
		m := n.receive()
		if s := m.GetStart(); s != nil {
			started[s.GetId()] = true
			continue
		}
		b := m.GetBound()
		if !started[b.GetInstance()] || b.GetInstance() != "f"+b.GetRequest() {
			t.Fatalf("%v came before its instance's start", b)
		}
		bound++
	}
	if bound != 100 {
		t.Errorf("%d requests were bound", bound)
	}
}

// An activation that waits ends with its stream, and so does not keep the next one.
func TestAnActivationEndsWithItsStream(t *testing.T) {
	cp := serve(t)
	waiting := make(chan struct{})
	cp.handler.activate = func(ctx context.Context, _ string, a *nodeapi.Activate) *nodeapi.ControlMessage {
		close(waiting)
		<-ctx.Done()
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Refused{Refused: &nodeapi.Refused{Request: a.GetRequest()}}}
	}
	n := cp.connect(t, "edge-1", "v1")
	n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: "1"}}})
	<-waiting
	cp.connect(t, "edge-1", "v2").wantFunctions()
	want := []string{"edge-1 joined with v1", "edge-1 left", "edge-1 joined with v2"}
	if d := cmp.Diff(want, cp.handler.await(t, "edge-1 joined with v2")); d != "" {
		t.Error(d)
	}
}

func TestSendingToANodeThatIsNotThere(t *testing.T) {
	cp := serve(t)
	if err := cp.Send("moon", stop("fire-1")); !errors.Is(err, nodes.ErrNotConnected) || err.Error() != "node moon: the node is not connected" {
		t.Errorf("error is %v", err)
	}
}

// Nodes are told which control plane is in charge, after the functions, and when it is not any
// more. One that never is says nothing.
func TestNodesAreToldWhoIsInCharge(t *testing.T) {
	cp := serve(t)
	early := cp.connect(t, "early", "v1")
	early.wantFunctions()
	cp.SetInCharge(false) // it is not, anyway
	cp.SetInCharge(true)
	cp.SetInCharge(true)
	late := cp.connect(t, "late", "v1")
	late.wantFunctions()
	for _, n := range []*node{early, late} {
		if m := n.receive(); !m.GetInCharge().GetHeld() {
			t.Errorf("told %v", m)
		}
	}
	cp.SetInCharge(false)
	for _, n := range []*node{early, late} {
		if m := n.receive(); m.GetInCharge() == nil || m.GetInCharge().GetHeld() {
			t.Errorf("told %v", m)
		}
	}
}

// Before a node has functions for which it takes requests over, it knows what those are signed by.
func TestNodesAreToldTheKeysFirst(t *testing.T) {
	cp := serve(t)
	early := cp.connect(t, "early", "v1")
	early.wantFunctions()
	keys := &nodeapi.Keys{Keys: [][]byte{[]byte("one"), []byte("two")}}
	cp.SetKeys(keys)
	for name, n := range map[string]*node{"early": early, "late": cp.connect(t, "late", "v1")} {
		if got := n.receive().GetKeys(); !proto.Equal(got, keys) {
			t.Errorf("%s is told %v", name, got)
		}
		if name == "late" {
			n.wantFunctions()
		}
	}
}
