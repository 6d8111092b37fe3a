package activation_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

var spans = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	goleak.VerifyTestMain(m)
}

const (
	requestID   = "0123456789abcdef0123456789abcdef"
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID    = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

// world is placer and nodes; it writes down in which order they are used.
type world struct {
	instance platform.Instance
	err      error
	heals    time.Time // when err does not count any more; zero: never
	away     bool      // the nodes take no message
	joins    time.Time // when node bare's daemon connects; zero: never

	order   []string
	request platform.Request
	span    trace.SpanContext // that the placer is called under
	sent    []*nodeapi.ControlMessage
}

func (w *world) Activate(ctx context.Context, r platform.Request) (platform.Instance, error) {
	w.order = append(w.order, "placed")
	w.request, w.span = r, trace.SpanContextFromContext(ctx)
	if !w.heals.IsZero() && !time.Now().Before(w.heals) {
		return w.instance, nil
	}
	return w.instance, w.err
}

func (w *world) Runs(node, function string) bool {
	return node == "edge" && function == "default/caller"
}

func (w *world) Send(node string, m *nodeapi.ControlMessage) error {
	w.order = append(w.order, "told "+node)
	if w.away {
		return errors.New("away")
	}
	w.sent = append(w.sent, m)
	return nil
}

func (w *world) Connected() map[string]*nodeapi.Register {
	nodes := map[string]*nodeapi.Register{"edge": {PeerAddress: "10.0.0.1:9461"}, "cloud": {PeerAddress: "10.0.0.2:9461"}}
	if !w.joins.IsZero() && !time.Now().Before(w.joins) {
		nodes["bare"] = &nodeapi.Register{PeerAddress: "10.0.0.3:9461"}
	}
	return nodes
}

// activate has a request of function default/fire with an input activated on node edge.
func activate(t *testing.T, w *world) (*nodeapi.ControlMessage, *prometheus.Registry) {
	t.Helper()
	spans.Reset()
	r := prometheus.NewRegistry()
	a := activation.New(w, w, w, nil, r, slog.New(slog.DiscardHandler))
	return a.Activate(t.Context(), "edge", message("default/fire")), r
}

func message(function string) *nodeapi.Activate {
	return &nodeapi.Activate{Request: requestID, Function: function, Traceparent: traceparent,
		Input: "s3://videos/a.mjpeg", Inputs: map[string]string{"mask": "s3://masks/a"}}
}

func TestBinding(t *testing.T) {
	bound := func(b *nodeapi.Bound) *nodeapi.ControlMessage {
		b.Request, b.Instance = requestID, "fire-1"
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: b}}
	}
	relayed := func(address string, headers map[string]string) *nodeapi.ControlMessage {
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{Request: requestID, RelayAddress: address, RelayHeaders: headers}}}
	}
	refused := func() *nodeapi.ControlMessage {
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Refused{Refused: &nodeapi.Refused{Request: requestID, Status: http.StatusServiceUnavailable,
			Reason: "NodeDaemonAway", Message: "the function's instance is on node bare, whose headstart-node is not connected; see that it runs there"}}}
	}
	cases := []struct {
		name  string
		world world
		want  *nodeapi.ControlMessage
		order []string
	}{
		{"cold, on the request's own node", world{instance: platform.Instance{Node: "edge", Phase: platform.Starting}},
			bound(&nodeapi.Bound{Node: "edge", Cold: true}), []string{"placed"}},
		{"hot", world{instance: platform.Instance{Node: "edge", Phase: platform.Ready}},
			bound(&nodeapi.Bound{Node: "edge"}), []string{"placed"}},
		{"another node is told what is coming, before the request can get there", world{instance: platform.Instance{Node: "cloud", Phase: platform.Starting}},
			bound(&nodeapi.Bound{Node: "cloud", PeerAddress: "10.0.0.2:9461", Cold: true}), []string{"placed", "told cloud"}},
		{"another node that cannot be told learns it from the request", world{away: true, instance: platform.Instance{Node: "cloud", Phase: platform.Ready}},
			bound(&nodeapi.Bound{Node: "cloud", PeerAddress: "10.0.0.2:9461"}), []string{"placed", "told cloud"}},
		{"on a node without a daemon, ready", world{
			instance: platform.Instance{
				Node: "bare", Phase: platform.Ready, Address: netip.MustParseAddrPort("10.1.0.2:8080"),
			},
		},
			relayed("10.1.0.2:8080", nil), []string{"placed"}},
		{"through another autoscaler's relay", world{instance: platform.Instance{Phase: platform.Ready, Relay: &platform.Relay{Address: "10.1.0.9:80", Headers: map[string]string{"K": "v"}}}},
			relayed("10.1.0.9:80", map[string]string{"K": "v"}), []string{"placed"}},
		{"on a node without a daemon, starting", world{instance: platform.Instance{Node: "bare", Phase: platform.Starting}},
			refused(), []string{"placed"}},
		{"on a node without a daemon, behind a sidecar", world{
			instance: platform.Instance{
				Node: "bare", Phase: platform.Ready, Address: netip.MustParseAddrPort("10.1.0.2:8080"), MeshSNI: "fire",
			},
		},
			refused(), []string{"placed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.world.instance.ID = "fire-1"
				got, _ := activate(t, &c.world)
				if d := cmp.Diff(c.want, got, protocmp.Transform()); d != "" {
					t.Error(d)
				}
				// It is placed again and again while nobody can take it.
				if d := cmp.Diff(c.order, slices.Compact(c.world.order)); d != "" {
					t.Error(d)
				}
				if want := (platform.Request{ID: requestID, Function: "default/fire", Node: "edge"}); c.world.request != want {
					t.Errorf("placed %+v, want %+v", c.world.request, want)
				}
			})
		})
	}
}

// After a restart of the control plane the daemons connect one after the other.
func TestARequestWaitsForTheDaemonOfItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{instance: platform.Instance{ID: "fire-1", Node: "bare", Phase: platform.Ready, Address: netip.MustParseAddrPort("10.1.0.2:8080")}}
		for sni, joins := range map[string]time.Duration{"fire": 3 * time.Second, "": time.Second} {
			w.joins, w.instance.MeshSNI = time.Now().Add(joins), sni
			began := time.Now()
			got, _ := activate(t, w)
			if b := got.GetBound(); b.GetPeerAddress() != "10.0.0.3:9461" || time.Since(began) > 4*time.Second {
				t.Errorf("%q: %v after %v", sni, got, time.Since(began))
			}
		}
		w.joins, w.instance.MeshSNI = time.Time{}, ""
		m := message("default/fire")
		m.Input, m.Inputs = "", nil
		a := activation.New(w, w, w, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		for _, waits := range []time.Duration{0, 2*time.Second + 100*time.Millisecond, 0} { // without inputs; with; when that was in vain
			began := time.Now()
			got := a.Activate(t.Context(), "edge", m)
			if got.GetBound().GetRelayAddress() != "10.1.0.2:8080" || time.Since(began) != waits {
				t.Errorf("%v after %v, want %v", got, time.Since(began), waits)
			}
			m = message("default/fire")
		}
	})
}

// What the platform refuses for the moment is asked for again.
func TestARefusalPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]bool{3 * time.Second: true, time.Minute: false} {
			began := time.Now()
			w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Starting},
				err: &platform.Refusal{Status: 503, Reason: "NodeUnavailable", Passing: true}, heals: began.Add(after)}
			got, _ := activate(t, w)
			if is := got.GetBound() != nil; is != want || time.Since(began) > 9*time.Second {
				t.Errorf("%v: %v after %v", after, got, time.Since(began))
			}
		}
	})
}

func TestAnotherNodeIsToldAllOfIt(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Starting}}
	activate(t, w)
	want := []*nodeapi.ControlMessage{{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{
		Request: requestID, Function: "default/fire", Instance: "fire-1", Input: "s3://videos/a.mjpeg",
		Inputs: map[string]string{"mask": "s3://masks/a"}, Traceparent: traceparent}}}}
	if d := cmp.Diff(want, w.sent, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

func TestWithoutAnInputThereIsNothingToExpect(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Starting}}
	a := activation.New(w, w, w, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	m := message("default/fire")
	m.Input, m.Inputs = "", nil
	a.Activate(t.Context(), "edge", m)
	if len(w.sent) != 0 {
		t.Errorf("told %v", w.sent)
	}
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want *nodeapi.Refused
	}{
		{"in the platform's words", fmt.Errorf("placing: %w", &platform.Refusal{Status: 503, Reason: "NodeUnavailable", Message: `node "moon" is not connected`, Field: "spec.template.spec.nodeSelector"}),
			&nodeapi.Refused{Status: 503, Reason: "NodeUnavailable", Message: `node "moon" is not connected`, Field: "spec.template.spec.nodeSelector"}},
		{"what went wrong inside is not the caller's to know", errors.New("dial 10.0.0.7: secret"),
			&nodeapi.Refused{Status: 500, Reason: "Internal", Message: "the control plane could not place the request; its log says why"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, _ := activate(t, &world{err: c.err})
			c.want.Request = requestID
			if d := cmp.Diff(c.want, got.GetRefused(), protocmp.Transform()); d != "" {
				t.Error(d)
			}
			s := spans.GetSpans()
			if len(s) != 1 || s[0].Status.Code != codes.Error || s[0].Status.Description != c.want.Reason {
				t.Errorf("spans: %+v", s)
			}
		})
	}
}

// The placement is a leaf below the request's activation; the sandbox, which outlives
// it, is a matter of the activation.
func TestThePlacementSpan(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Starting}}
	activate(t, w)
	all := spans.GetSpans()
	if len(all) != 1 {
		t.Fatalf("%d spans", len(all))
	}
	s := all[0]
	if s.Name != "placement" || s.SpanContext.TraceID().String() != traceID || s.Parent.SpanID().String() != parentID {
		t.Errorf("span is %s, parent %s, trace %s", s.Name, s.Parent.SpanID(), s.SpanContext.TraceID())
	}
	want := map[attribute.Key]string{"headstart.function": "default/fire", "headstart.request": requestID, "headstart.node": "cloud", "headstart.instance": "fire-1"}
	got := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		got[a.Key] = a.Value.AsString() // the input's reference is not among them: keys may tell of people
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if w.span.SpanID().String() != parentID {
		t.Errorf("what the placement begins hangs below %s, want %s", w.span.SpanID(), parentID)
	}
}

func TestARequestWithoutATrace(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "edge"}}
	a := activation.New(w, w, w, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	m := message("default/fire")
	for _, m.Traceparent = range []string{"", "00-0-0-01", strings.Repeat("x", 1000)} {
		if got := a.Activate(t.Context(), "edge", m); got.GetBound() == nil {
			t.Errorf("traceparent %.20q: %v", m.Traceparent, got)
		}
		if w.span.IsValid() {
			t.Errorf("traceparent %.20q gives %v", m.Traceparent, w.span)
		}
	}
}

func TestMetricsCountOutcomes(t *testing.T) {
	w := &world{}
	r := prometheus.NewRegistry()
	a := activation.New(w, w, w, nil, r, slog.New(slog.DiscardHandler))
	for _, phase := range []platform.Phase{platform.Starting, platform.Starting, platform.Ready} {
		w.instance = platform.Instance{ID: "fire-1", Node: "edge", Phase: phase}
		a.Activate(t.Context(), "edge", message("default/fire"))
	}
	w.err = &platform.Refusal{Status: 503, Reason: "NoNode"}
	a.Activate(t.Context(), "edge", message("default/fire"))
	// Names that nobody has looked up must not become labels.
	for i := range 50 {
		w.err = &platform.Refusal{Status: 404, Reason: "FunctionUnknown"}
		a.Activate(t.Context(), "edge", message(fmt.Sprint("made/up-", i)))
		w.err = context.Canceled
		a.Activate(t.Context(), "edge", message(fmt.Sprint("made/up-", i)))
	}
	const want = `# HELP headstart_activations_total Requests that were bound to an instance, or refused, by the outcome.
# TYPE headstart_activations_total counter
headstart_activations_total{function="",outcome="FunctionUnknown"} 50
headstart_activations_total{function="",outcome="Internal"} 50
headstart_activations_total{function="default/fire",outcome="Cold"} 2
headstart_activations_total{function="default/fire",outcome="Hot"} 1
headstart_activations_total{function="default/fire",outcome="NoNode"} 1
`
	page := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if d := cmp.Diff(want, page.Body.String()); d != "" {
		t.Error(d)
	}
}

// signing returns a control plane's key, and an activator that signs by it.
func signing(t *testing.T, w *world) (ed25519.PublicKey, *activation.Activator) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, activation.New(w, w, w, private, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
}

// The request's node hands it over with a signature on all that it is bound to. An older daemon does
// not: the instance's node learns of the signature at once.
func TestABindingToAnotherNodeIsSigned(t *testing.T) {
	for _, handsOver := range []bool{true, false} {
		w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Starting}}
		key, a := signing(t, w)
		m := message("default/fire")
		m.Caller, m.HandsOver = "default/caller", handsOver
		token := a.Activate(t.Context(), "edge", m).GetBound().GetCapability()
		expires, _, err := capability.Verify([]ed25519.PublicKey{key}, capability.Binding{Request: requestID,
			Function: "default/fire", Instance: "fire-1", Input: "s3://videos/a.mjpeg", Inputs: "mask=s3://masks/a",
			Source: "edge", Target: "cloud", Caller: "default/caller"}, token)
		if left := time.Until(expires); err != nil || left <= 0 || left > capability.Life {
			t.Errorf("%q: %v, expires in %v", token, err, left)
		}
		announced := w.sent[0].GetExpect().GetCapability()
		if handsOver && announced != "" || !handsOver && announced != token {
			t.Errorf("the daemon hands it over: %v; announced is %q", handsOver, announced)
		}
		m.Input, m.Inputs = "", nil
		if a.Activate(t.Context(), "edge", m); handsOver && len(w.sent) != 1 || !handsOver && len(w.sent) != 2 {
			t.Errorf("the daemon hands it over: %v; without an input, the other node is told %v", handsOver, w.sent)
		}
	}
}

func TestABindingToTheRequestsNodeNeedsNoSignature(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "edge", Phase: platform.Ready}}
	_, a := signing(t, w)
	if got := a.Activate(t.Context(), "edge", message("default/fire")).GetBound(); got.GetCapability() != "" {
		t.Errorf("bound as %v", got)
	}
}

// A node calls for a function that runs elsewhere. Nothing is placed, and nothing grows by the names.
func TestAttackANodeClaimsACaller(t *testing.T) {
	w := &world{instance: platform.Instance{ID: "fire-1", Node: "cloud", Phase: platform.Ready}}
	_, a := signing(t, w)
	for node, caller := range map[string]string{"edge": "bank/ledger", "cloud": "default/caller"} {
		m := message("default/fire")
		m.Caller = caller
		got := a.Activate(t.Context(), node, m).GetRefused()
		if got.GetStatus() != http.StatusForbidden || got.GetReason() != "CallerUnknown" || got.GetField() != "x-headstart-caller" || len(w.order) != 0 {
			t.Errorf("node %s calls for %s: %v, %v", node, caller, got, w.order)
		}
	}
}
