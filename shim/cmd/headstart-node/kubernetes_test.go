package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/inputs"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

const (
	// patience is how long the machine may take for what takes it milliseconds.
	patience = 30 * time.Second
	podID    = "default_fire-x_u-1"
)

// cluster is a control plane for one node, which runs one pod.
type cluster struct {
	nodeapi.UnimplementedIdentityServer
	nodeapi.UnimplementedControlPlaneServer
	coltracepb.UnimplementedTraceServiceServer
	t       *testing.T
	ca      *peertlstest.Authority
	pod     string // address
	news    chan *nodeapi.ControlMessage
	names   chan string
	spans   chan string
	running sync.WaitGroup
}

func newCluster(t *testing.T, pod string) *cluster {
	t.Helper()
	c := &cluster{t: t, ca: peertlstest.New(t), pod: pod, news: make(chan *nodeapi.ControlMessage, 1), names: make(chan string, 8), spans: make(chan string, 1024)}
	t.Cleanup(c.running.Wait)
	return c
}

func (c *cluster) Issue(_ context.Context, r *nodeapi.IssueRequest) (*nodeapi.IssueResponse, error) {
	csr, err := x509.ParseCertificateRequest(r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	certificate, err := c.ca.Sign(csr.PublicKey, "edge-1", csr.IPAddresses...)
	return &nodeapi.IssueResponse{Certificate: certificate}, err
}

func (c *cluster) Connect(s nodeapi.ControlPlane_ConnectServer) error {
	name, err := peertls.Peer(s.Context())
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(m *nodeapi.ControlMessage) {
		mu.Lock()
		defer mu.Unlock()
		_ = s.Send(m) // the stream's end is told by Recv
	}
	c.running.Go(func() {
		select {
		case m := <-c.news:
			say(m)
		case <-s.Context().Done():
		}
	})
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetRegister() != nil:
			c.names <- name + " " + m.GetRegister().GetIngressSocket()
			say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: []*nodeapi.Function{{
				Name: "default/fire", Hosts: []string{"fire.default"}, ReadyTimeout: durationpb.New(patience), RequestTimeout: durationpb.New(patience)}}}}})
		case m.GetActivate() != nil:
			say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{
				{Id: podID, Function: "default/fire", Phase: nodeapi.Phase_PHASE_STARTING, Address: c.pod}}}}})
			say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{
				Request: m.GetActivate().GetRequest(), Instance: podID, Node: name, Cold: true}}})
		}
	}
}

func (c *cluster) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				c.spans <- span.GetName()
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// serve serves everything on one port and returns it.
func (c *cluster) serve(options ...grpc.ServerOption) string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	nodeapi.RegisterIdentityServer(s, c)
	nodeapi.RegisterControlPlaneServer(s, c)
	coltracepb.RegisterTraceServiceServer(s, c)
	c.running.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(s.Stop)
	return l.Addr().String()
}

// tls is the control plane's own side.
func (c *cluster) tls(auth tls.ClientAuthType) grpc.ServerOption {
	c.t.Helper()
	return grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.ca.Party(c.t, "headstart-controlplane")},
		ClientAuth: auth, ClientCAs: c.ca.Pool()}))
}

// daemonDir has what daemons of a node find on it.
func daemonDir(t *testing.T, cp *cluster) (in func(string) string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	in = func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("token"), []byte("token"), 0o600),
		os.WriteFile(in("ca"), cp.ca.PEM(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return in
}

// startDaemon runs one until stop, which waits for its end. Only one of a process can send
// spans.
func startDaemon(t *testing.T, cp *cluster, in func(string) string, otlp string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := config{platform: platformKubernetes, stateDir: in("state"), runDir: in("run"), secretsDir: in("none"),
		controlPlane: cp.serve(cp.tls(tls.RequireAndVerifyClientCert)), controlName: "headstart-controlplane", ca: in("ca"),
		identity: cp.serve(cp.tls(tls.NoClientCert)), token: in("token"), nodeName: "edge-1", peerListen: fmt.Sprint("127.0.0.1:", porttest.Free(t)),
		inputs: inputs.Config{Disk: 1 << 20}, gatewayUID: os.Getuid(),
		otlp: otlp, otlpMutualTLS: true, logLevel: "warn"}
	go func() { ended <- run(ctx, c) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// gatewayOf sends requests as a gateway without filter does, which keeps its connections.
func gatewayOf(t *testing.T, in func(string) string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", in("run/gateway/ingress.sock"))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// An update of the daemon starts the new one while the old one runs. No request is lost, nor
// one that the old one waits with.
func TestADaemonTakesOverFromAnother(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(inside)
			<-release
		}
		_, _ = io.WriteString(w, "fire!")
	}))
	defer function.Close()
	cp := newCluster(t, strings.TrimPrefix(function.URL, "http://"))
	in := daemonDir(t, cp)
	stopFirst := startDaemon(t, cp, in, "")
	<-cp.names
	gateway := gatewayOf(t, in)
	get := func(path string) error {
		resp, err := gateway.Get("http://fire.default" + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "fire!" {
			return fmt.Errorf("%d %s, %w", resp.StatusCode, body, err)
		}
		return nil
	}
	slow := make(chan error, 1)
	go func() { slow <- get("/slow") }()
	<-inside
	if err := get("/"); err != nil { // on a connection that is kept
		t.Fatal(err)
	}
	stopSecond := startDaemon(t, cp, in, "")
	defer stopSecond()
	<-cp.names
	stopped := make(chan struct{})
	go func() { stopFirst(); close(stopped) }()
	for range 50 {
		if err := get("/"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-stopped:
		t.Error("the old daemon ended before its request")
	default:
	}
	close(release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	<-stopped
	if err := get("/"); err != nil {
		t.Error(err)
	}
}

// A node of a cluster, from nothing but a token to the answer of a request that waited for
// its pod.
func TestANodeOfACluster(t *testing.T) {
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fire!") }))
	defer function.Close()
	cp := newCluster(t, strings.TrimPrefix(function.URL, "http://"))
	in := daemonDir(t, cp)
	ctx := t.Context()
	stop := startDaemon(t, cp, in, cp.serve(cp.tls(tls.RequireAndVerifyClientCert)))
	defer stop()
	if name, want := <-cp.names, "edge-1 "+in("run/gateway/ingress.sock"); name != want {
		t.Errorf("registered as %s, want %s", name, want)
	}

	// The pod's container asks, as its shim does, and sends its spans.
	shim := dial(t, in("run/node.sock"))
	d, err := nodeapi.NewSandboxesClient(shim).Describe(ctx, &nodeapi.DescribeRequest{Sandbox: "a",
		Pod: &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1", Container: "fire"}})
	if err != nil || d.GetMounts()[0].GetSource() != in("state/instances/"+podID+"/input") {
		t.Fatalf("%v, %v", d, err)
	}
	collector := dial(t, strings.TrimPrefix(d.GetOtlpTarget(), "unix:"))
	if _, err := coltracepb.NewTraceServiceClient(collector).Export(ctx, &coltracepb.ExportTraceServiceRequest{}); err != nil {
		t.Error(err)
	}

	resp, err := gatewayOf(t, in).Get("http://fire.default:80/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "fire!" {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	want := map[string]bool{"sandbox.create": true, "runtime.start": true, "activation": true, "execute": true}
	for late := time.After(patience); len(want) > 0; {
		select {
		case name := <-cp.spans:
			delete(want, name)
		case <-late:
			t.Fatalf("no spans %v", want)
		}
	}

	// A gateway is one that has the key in that file, as its Envoy sends it.
	key, err := os.ReadFile(in("run/gateway/key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []struct {
		key  string
		want codes.Code
	}{{string(key), codes.OK}, {"", codes.PermissionDenied}} {
		ctx := metadata.AppendToOutgoingContext(ctx, "x-headstart-key", with.key)
		_, err := logs.NewLogsServiceClient(dial(t, in("run/gateway/gateway.sock"))).Export(ctx, &logs.ExportLogsServiceRequest{})
		if status.Code(err) != with.want {
			t.Errorf("with the key %q: %v", with.key, err)
		}
	}

	for path, mode := range map[string]fs.FileMode{"run/gateway": 0o711, "run/gateway/ingress.sock": 0o600, "run/gateway/hints.sock": 0o600,
		"run/gateway/gateway.sock": 0o600, "run/gateway/key": 0o600, "run/node.sock": 0o600, "run/descriptors.sock": 0o600,
		"run/endpoints.sock": 0o600, "run/streams.sock": 0o600, "run/otlp.sock": 0o600} {
		if info, err := os.Stat(in(path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// A job's container that is ahead of the control plane's word knows by its own annotations what
// it is, and waits at its socket for that word.
func TestAJobAheadOfTheControlPlane(t *testing.T) {
	cp := newCluster(t, "")
	in := daemonDir(t, cp)
	defer startDaemon(t, cp, in, "")()
	<-cp.names
	d, err := nodeapi.NewSandboxesClient(dial(t, in("run/node.sock"))).Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: "a", Job: true,
		Pod: &nodeapi.Pod{Namespace: "default", Name: "digest-x", Uid: "u-2", Container: "digest"}})
	if err != nil || d.GetEnv()["HEADSTART_INPUT"] != "/headstart/input/job" {
		t.Fatalf("%v, %v", d, err)
	}
	program := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", in("state/instances/default_digest-x_u-2/socket/headstart.sock"))
	}}}
	answer := make(chan string, 1)
	go func() {
		resp, err := program.Get("http://headstart/input/job")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body) // or it is not what is wanted
		answer <- string(said)
	}()
	cp.news <- &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Jobs: []*nodeapi.Job{{
		Id: "default_digest-x_u-2", Name: "default/digest", Input: "s3://videos/a", Refused: &nodeapi.Refused{Status: 422, Reason: "AnnotationsRefused", Message: "no such store"}}}}}}
	if said := <-answer; !strings.Contains(said, "AnnotationsRefused") {
		t.Errorf("it is told %s", said)
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
