//go:build integration

package soak

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
)

// controlPlaneName is what the daemons expect in its certificate.
const controlPlaneName = "headstart-controlplane"

// controlPlane places requests as the plan says. What it tells the daemons, and how, is as
// the real one does on Kubernetes.
type controlPlane struct {
	nodeapi.UnimplementedIdentityServer
	nodeapi.UnimplementedControlPlaneServer
	w                   *world
	ca                  *peertlstest.Authority
	key                 ed25519.PrivateKey // of capabilities
	authority           string             // its file
	address, identity   string
	placements, serving sync.WaitGroup
	over                context.Context

	mu    sync.Mutex
	nodes map[string]*session
}

// session is what is known of a node.
type session struct {
	times   int // that it has registered
	stream  nodeapi.ControlPlane_ConnectServer
	sending sync.Mutex
	pods    []*nodeapi.InstanceStatus
	load    map[string]int32
	shims   *grpc.ClientConn
}

func newControlPlane(w *world) *controlPlane {
	w.t.Helper()
	c := &controlPlane{w: w, ca: peertlstest.New(w.t), nodes: map[string]*session{"edge": {}, "cloud": {}}, authority: filepath.Join(w.dir, "ca.pem")}
	var err error
	if _, c.key, err = ed25519.GenerateKey(nil); err != nil {
		w.t.Fatal(err)
	}
	var cancel context.CancelFunc
	c.over, cancel = context.WithCancel(context.Background())
	w.t.Cleanup(func() { cancel(); c.placements.Wait(); c.serving.Wait() })
	if err := os.WriteFile(c.authority, c.ca.PEM(), 0o600); err != nil {
		w.t.Fatal(err)
	}
	c.address, c.identity = c.serve(w.t, tls.RequireAndVerifyClientCert), c.serve(w.t, tls.NoClientCert)
	return c
}

func (c *controlPlane) serve(t *testing.T, auth tls.ClientAuthType) string {
	t.Helper()
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{c.ca.Party(t, controlPlaneName)}, ClientAuth: auth, ClientCAs: c.ca.Pool()})))
	nodeapi.RegisterIdentityServer(s, c)
	nodeapi.RegisterControlPlaneServer(s, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.serving.Go(func() { _ = s.Serve(l) }) // it ends with Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// Issue implements nodeapi.IdentityServer. A token is the node's name.
func (c *controlPlane) Issue(ctx context.Context, r *nodeapi.IssueRequest) (*nodeapi.IssueResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	name, bearer := strings.CutPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	csr, err := x509.ParseCertificateRequest(r.GetCertificateRequest())
	if err != nil || !bearer {
		return nil, status.Error(codes.InvalidArgument, "no token, or no certificate request")
	}
	certificate, err := c.ca.Sign(csr.PublicKey, name, csr.IPAddresses...)
	return &nodeapi.IssueResponse{Certificate: certificate}, err
}

// Connect implements nodeapi.ControlPlaneServer.
func (c *controlPlane) Connect(stream nodeapi.ControlPlane_ConnectServer) error {
	name, err := peertls.Peer(stream.Context())
	if err != nil {
		return err
	}
	defer c.left(name, stream)
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetRegister() != nil:
			c.register(name, stream)
		case m.GetLoad() != nil:
			c.mu.Lock()
			c.nodes[name].load = m.GetLoad().GetInFlight()
			c.mu.Unlock()
		case m.GetActivate() != nil:
			c.placements.Go(func() { c.place(name, m.GetActivate()) })
		}
	}
}

func (c *controlPlane) register(name string, stream nodeapi.ControlPlane_ConnectServer) {
	c.mu.Lock()
	s := c.nodes[name]
	s.stream, s.load = stream, nil
	c.mu.Unlock()
	c.say(name, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Keys{Keys: &nodeapi.Keys{Keys: [][]byte{c.key.Public().(ed25519.PublicKey)}}}})
	c.say(name, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: functions(), Stores: c.w.stores()}}})
	c.tell(name)
	c.say(name, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Triggers{Triggers: &nodeapi.Triggers{Triggers: triggers()}}})
	c.mu.Lock()
	defer c.mu.Unlock()
	s.times++
}

func (c *controlPlane) left(name string, stream nodeapi.ControlPlane_ConnectServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.nodes[name]; s.stream == stream {
		s.stream, s.load = nil, nil
	}
}

// functions are those of all cases: by the input, and by what is special.
func functions() []*nodeapi.Function {
	const limit = 8 << 20
	bound := durationpb.New(50 * time.Second)
	of := func(name, store string) *nodeapi.Function {
		return &nodeapi.Function{Name: "soak/" + name, Hosts: []string{name + ".soak"}, HasInput: store != "", Store: store, InputLimit: limit, ReadyTimeout: bound, RequestTimeout: bound}
	}
	all := []*nodeapi.Function{of("none", ""), of("s3", "s3"), of("redis", "redis"), of("http", "http"), of("body", ""),
		of("hasty", "s3"), of("wide-s3", "s3"), of("wide-http", "http"), of("wide-body", ""), of("mortal-none", ""), of("mortal-s3", "s3"), of("mortal-body", "")}
	for _, q := range queues {
		all = append(all, of(q.function, q.store))
	}
	for _, f := range all {
		f.BodyInput = strings.HasSuffix(f.GetName(), "body")
		if strings.HasPrefix(f.GetName(), "soak/wide-") {
			f.InputLimit = 1 << 30
		}
		if f.GetName() == "soak/hasty" {
			f.ReadyTimeout = durationpb.New(time.Second)
		}
	}
	return all
}

func (c *controlPlane) registrations(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name].times
}

// registered waits until a node has registered so often.
func (c *controlPlane) registered(ctx context.Context, name string, times int) error {
	return testbed.Poll(ctx, patience, func(context.Context) error {
		if n := c.registrations(name); n < times {
			return fmt.Errorf("%s has registered %d times", name, n)
		}
		return nil
	})
}

// say sends a message to a node. One that is away registers anew, and is told all.
func (c *controlPlane) say(name string, m *nodeapi.ControlMessage) {
	c.mu.Lock()
	s := c.nodes[name]
	stream := s.stream
	c.mu.Unlock()
	if stream == nil {
		return
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = stream.Send(m) // as above
}

// tell tells a node of its pods.
func (c *controlPlane) tell(name string) {
	c.mu.Lock()
	s := c.nodes[name]
	stream := s.stream
	c.mu.Unlock()
	if stream == nil {
		return
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c.mu.Lock()
	pods := slices.Clone(s.pods)
	c.mu.Unlock()
	_ = stream.Send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: pods}}})
}

// setPod tells a node that a pod is there, or has changed.
func (c *controlPlane) setPod(name string, pod *nodeapi.InstanceStatus) {
	c.mu.Lock()
	s := c.nodes[name]
	s.pods = slices.DeleteFunc(s.pods, func(p *nodeapi.InstanceStatus) bool { return p.GetId() == pod.GetId() })
	s.pods = append(s.pods, pod)
	c.mu.Unlock()
	c.tell(name)
}

func (c *controlPlane) removePod(name, id string) {
	c.mu.Lock()
	s := c.nodes[name]
	s.pods = slices.DeleteFunc(s.pods, func(p *nodeapi.InstanceStatus) bool { return p.GetId() == id })
	c.mu.Unlock()
	c.tell(name)
}

// shims is how a node's shims reach its daemon.
func (c *controlPlane) shims(n *node) (nodeapi.SandboxesClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.nodes[n.name]
	if s.shims == nil {
		conn, err := grpc.NewClient("unix:"+n.socket("node.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.w.t.Cleanup(func() { _ = conn.Close() })
		s.shims = conn
	}
	return nodeapi.NewSandboxesClient(s.shims), nil
}

// place answers a daemon that asks for an instance.
func (c *controlPlane) place(asker string, a *nodeapi.Activate) {
	refuse := func() {
		c.say(asker, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Refused{Refused: &nodeapi.Refused{Request: a.GetRequest(),
			Status: http.StatusServiceUnavailable, Reason: "Unschedulable", Message: "the plan says so"}}})
	}
	r := c.w.caseOf(a)
	if r == nil || !r.enterPlacement() {
		refuse()
		return
	}
	defer r.placing.Done()
	placed := int(r.placements.Add(1))
	if r.Fault == plan.PlacementRefused && (r.Way != plan.Entry || placed == 1) { // an entry comes again
		refuse()
		return
	}
	on := c.w.node(r.On)
	if r.Fault == plan.NodeDies && placed > 1 && r.sparedLater() {
		on = c.w.edge
	}
	bound := &nodeapi.Bound{Request: a.GetRequest(), Instance: fmt.Sprintf("soak_%06d-%d_u", r.Number, placed), Node: on.name, Cold: r.Start > 0}
	if on.name != asker {
		bound.PeerAddress = on.peer
		bound.Capability = capability.Sign(c.key, capability.Binding{Request: a.GetRequest(), Function: a.GetFunction(),
			Instance: bound.GetInstance(), Input: a.GetInput(), Inputs: reference.NewInputs("", a.GetInputs()).String(),
			Source: asker, Target: on.name, Caller: a.GetCaller()}, time.Now().Add(capability.Life))
	}
	answer := func() { c.say(asker, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: bound}}) }
	if r.Fault == plan.InstanceGone && placed == 1 {
		answer()
		return
	}
	if err := c.start(r, on, placed, bound, a, answer); err != nil {
		if !errors.Is(err, errOver) {
			r.complain(fmt.Errorf("placing it on %s: %w", on.name, err))
		}
		refuse()
	}
}

// errOver ends the placing of a request that is over.
var errOver = errors.New("the request is over")

// start starts an instance for one placement of a request, as the kubelet would.
func (c *controlPlane) start(r *run, on *node, placed int, bound *nodeapi.Bound, a *nodeapi.Activate, answer func()) error {
	ctx, cancel := context.WithTimeout(c.over, patience)
	defer cancel()
	if !r.Hidden {
		shims, err := c.shims(on)
		if err != nil {
			return err
		}
		if _, err := shims.Describe(ctx, &nodeapi.DescribeRequest{Sandbox: bound.GetInstance(), Pod: pod(r, placed)}, grpc.WaitForReady(true)); err != nil {
			if status.Code(err) != codes.Unavailable { // the daemon was killed: the sandbox starts unchanged
				return err
			}
		}
	}
	r.adopt(on, bound.GetInstance(), pod(r, placed))
	instance := func(phase nodeapi.Phase, address string) *nodeapi.InstanceStatus {
		return &nodeapi.InstanceStatus{Id: bound.GetInstance(), Function: a.GetFunction(), Phase: phase, Address: address}
	}
	if r.Start == 0 {
		c.setPod(on.name, instance(nodeapi.Phase_PHASE_READY, on.function.address))
	} else {
		c.setPod(on.name, instance(nodeapi.Phase_PHASE_STARTING, ""))
	}
	if bound.GetPeerAddress() != "" && a.GetInput() != "" {
		c.say(on.name, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{Request: a.GetRequest(), Function: a.GetFunction(),
			Instance: bound.GetInstance(), Input: a.GetInput()}}})
	}
	answer()
	if r.Fault == plan.NodeDies && placed == 1 && r.Variant%plan.Moments != plan.DiesDelivered {
		return c.die(ctx, r, on, a)
	}
	if r.Start > 0 {
		select { // it takes as long as it takes
		case <-time.After(r.Start):
		case <-r.over:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
		c.setPod(on.name, instance(nodeapi.Phase_PHASE_STARTING, on.function.address))
	}
	if r.Fault == plan.NodeDies && placed == 1 {
		return c.die(ctx, r, on, a)
	}
	return nil
}

// die has the cloud's daemon die at the case's moment.
func (c *controlPlane) die(ctx context.Context, r *run, on *node, a *nodeapi.Activate) error {
	switch r.Variant % plan.Moments {
	case plan.DiesParked:
		err := testbed.Poll(ctx, patience, func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.nodes[on.name].load[a.GetFunction()] == 0 {
				return errors.New("the function's node has no such request")
			}
			return nil
		})
		if err != nil {
			return err
		}
	case plan.DiesDelivered:
		select {
		case <-r.delivered:
		case <-r.over:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.w.kill()
}

// pod is an instance as its shim names it.
func pod(r *run, placed int) *nodeapi.Pod {
	return &nodeapi.Pod{Namespace: "soak", Name: fmt.Sprintf("%06d-%d", r.Number, placed), Uid: "u", Container: "function"}
}
