package coordinator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fireManifest = `
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: fire
  annotations:
    headstart.dev/input: s3://{header.x-bucket}/{header.x-key}
    headstart.dev/store: videos
spec:
  template:
    spec:
      containers:
      - image: example.com/fire:1
`

// assemble joins the parts as run does, without the ways in. dir holds the state.
func assemble(t *testing.T, dir string) *Local {
	t.Helper()
	c, err := NewLocal(LocalConfig{StateDir: dir}, Parts{Traces: trace.NewStore(), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Stores: stores.Stores{{Name: "videos", Kind: "s3", Endpoint: "http://10.0.0.9:9000", Region: "eu-1", PathStyle: true, Buckets: []string{"videos"}, Secret: "videos"}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestADaemonSpeaksForItsOwnNodeOnly(t *testing.T) {
	as := func(name string) context.Context {
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
	}
	for _, c := range []struct {
		ctx  context.Context
		id   string
		want string
	}{
		{as("edge"), "edge", ""},
		{as("edge"), "cloud", `the certificate of "edge" does not speak for node "cloud"`},
		{as(""), "", "connection has no verified peer"},
		{t.Context(), "edge", "connection has no verified peer"},
	} {
		got := ""
		if err := verifyNode(c.ctx, c.id); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("node %q: %s, want %s", c.id, got, c.want)
		}
	}
}

// ready is what a node says of an instance of fire's first generation.
func ready(id string) *nodeapi.InstanceStatus {
	return &nodeapi.InstanceStatus{
		Id: id, Function: "default/fire", Phase: nodeapi.Phase_PHASE_READY, Address: "10.1.0.2:8080",
	}
}

// An input that no buffer can take is said when it is deployed, not with the first request.
func TestApplyWarnsOfALimitAboveTheBuffer(t *testing.T) {
	c := assemble(t, t.TempDir())
	for largest, want := range map[int64]string{
		0: "", 1 << 30: "",
		768 << 20: "headstart.dev/input-limit is 1Gi, but a node's buffer takes inputs of up to 768Mi: ",
	} {
		c.config.LargestInput = largest
		applied, err := c.Apply(strings.NewReader(fireManifest))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(applied[0].Warnings, ""); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("with room for %d: %q", largest, got)
		}
	}
}

func TestStatus(t *testing.T) {
	c := assemble(t, t.TempDir())
	if d := cmp.Diff(
		admin.Status{Version: nodeapi.Version, Nodes: []admin.Node{}, Functions: []admin.Function{}}, c.Status(),
	); d != "" {
		t.Errorf("of nothing: %s", d)
	}
	if _, err := c.Apply(strings.NewReader(fireManifest)); err != nil {
		t.Fatal(err)
	}
	c.Joined("edge", &nodeapi.Register{Instances: []*nodeapi.InstanceStatus{ready("default-fire-1-ab")}})
	c.Event("edge", &nodeapi.Event{
		Function: "default/fire", Reason: "InputNotFound", Message: "no such object", Field: "headstart.dev/input",
	})
	c.Event("edge", &nodeapi.Event{Function: "default/made-up", Reason: "InputNotFound"})
	got := c.Status().Functions
	want := []admin.Function{{Name: "default/fire", Hosts: []string{"fire.default.headstart.local", "fire.default"}, Image: "example.com/fire:1",
		Input: "s3://{header.x-bucket}/{header.x-key}",
		Instances: []admin.Instance{{
			ID: "default-fire-1-ab", Node: "edge", Phase: platform.Ready,
			Address: netip.MustParseAddrPort("10.1.0.2:8080"),
		}},
		Events: []event.Event{{Reason: "InputNotFound", Message: "no such object", Field: "headstart.dev/input", Node: "edge", Count: 1}}}}
	for i := range got {
		for j := range got[i].Events {
			got[i].Events[j].First, got[i].Events[j].Last = time.Time{}, time.Time{}
		}
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
		t.Error(d)
	}
}

// Who has a node's name besides it is said with what to do about it.
func TestNodeProblems(t *testing.T) {
	now := time.Now()
	for want, daemons := range map[string][]nodes.Daemon{
		"2 daemons have had this name for 3m0s: 10.0.0.1:7443 (v1), 10.0.0.2:7443 (v2); only the newest, the last of these, counts": {
			{Address: "10.0.0.1:7443", Process: "10.0.0.1:7443", Version: "v1"}, {Address: "10.0.0.2:7443", Process: "10.0.0.2:7443", Version: "v2"}},
		"4 daemons have had this name for 3m0s: 1 older, b:1 (v1, process 1), b:1 (v1, process 2), b:1 (v1, process 3); only the newest, the last of these, counts": {
			{Address: "a:1"}, {Address: "b:1", Process: "1", Version: "v1"}, {Address: "b:1", Process: "2", Version: "v1"}, {Address: "b:1", Process: "3", Version: "v1"}},
	} {
		got := twinProblems(nodes.Twins{Since: now.Add(-3 * time.Minute), Daemons: daemons}, now)
		if len(got) != 1 || got[0].Message != want || !strings.Contains(got[0].Fix, "another name") {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if got := twinProblems(nodes.Twins{}, now); got != nil {
		t.Errorf("of a node without: %+v", got)
	}
}

func TestDestinationProblems(t *testing.T) {
	got := destinationProblems([]nodes.DestinationProblem{{Destination: "orders", Message: "refused"}, {Message: "[0].name: is missing"}})
	if len(got) != 2 || got[0].Message != `cannot connect to destination "orders": refused` ||
		got[1].Message != "keeps its destinations from before: [0].name: is missing" {
		t.Errorf("%+v", got)
	}
}

func TestAManifestIsRefusedInItsParsersWords(t *testing.T) {
	c := assemble(t, t.TempDir())
	_, err := c.Apply(strings.NewReader(strings.ReplaceAll(fireManifest, "store: videos", "store: pictures")))
	var r *platform.Refusal
	if !errors.As(err, &r) || r.Status != http.StatusUnprocessableEntity || r.Reason != "ManifestRefused" ||
		!strings.Contains(r.Message, "function default/fire") || !strings.Contains(r.Message, "pictures") {
		t.Errorf("error is %v", err)
	}
	if got := c.Platform.State().Functions; len(got) != 0 {
		t.Errorf("deployed: %+v", got)
	}
}

func TestDeletingTwice(t *testing.T) {
	c := assemble(t, t.TempDir())
	if _, err := c.Apply(strings.NewReader(fireManifest)); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete("default/fire"); err != nil {
		t.Fatal(err)
	}
	var r *platform.Refusal
	if err := c.Delete("default/fire"); !errors.As(err, &r) || r.Reason != "FunctionUnknown" {
		t.Errorf("error is %v", err)
	}
}
