package local

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

func TestPlacement(t *testing.T) {
	cases := []struct {
		name          string
		own, gateway  string
		nodes         []string
		busy          []string // nodes, one entry for each instance there
		want, refused string
	}{
		{name: "the gateway's node", gateway: "edge-2", nodes: []string{"edge-1", "edge-2"}, busy: []string{"edge-2", "edge-2"}, want: "edge-2"},
		{name: "the manifest's node", own: "cloud", gateway: "edge-1", nodes: []string{"cloud", "edge-1"}, want: "cloud"},
		{name: "the fewest instances", gateway: "gone", nodes: []string{"a", "b", "c"}, busy: []string{"a", "b", "b"}, want: "c"},
		{name: "the first among equals", gateway: "gone", nodes: []string{"b", "c", "a"}, busy: []string{"c"}, want: "a"},
		{name: "the manifest's node is away", own: "moon", gateway: "edge-1", nodes: []string{"edge-2", "edge-1"},
			refused: `503 NodeUnavailable [spec.template.spec.nodeSelector]: node "moon" is not connected; nodes are: edge-1, edge-2`},
		{name: "there is no node", gateway: "edge-1", refused: "503 NoNode []: no node is connected to the control plane"},
		{name: "not even the manifest's", own: "moon", refused: "503 NoNode []: no node is connected to the control plane"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				for _, n := range c.nodes {
					w.Join(n)
				}
				for i, n := range c.busy {
					f := fireFunction()
					f.Name, f.Node = "busy/"+string(rune('a'+i)), n
					w.Deploy(f)
					w.activate(f.Name, n)
				}
				f := fireFunction()
				f.Node = c.own
				w.Deploy(f)
				in, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: c.gateway})
				if in.Node != c.want || refusalText(err) != c.refused {
					t.Errorf("placed on %q, refused: %s; want %q, %s", in.Node, refusalText(err), c.want, c.refused)
				}
			})
		})
	}
}

func refusalText(err error) string {
	var r *platform.Refusal
	if !errors.As(err, &r) {
		return ""
	}
	return strings.Join([]string{map[int]string{http.StatusServiceUnavailable: "503", http.StatusNotFound: "404"}[r.Status], r.Reason, "[" + r.Field + "]:", r.Message}, " ")
}

func TestAStartSaysAllThatTheNodeNeeds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		f := fireFunction()
		f.Policy.Input = "s3://{header.x-bucket}/{header.x-key}"
		w.Deploy(f)
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: [16]byte{1}, SpanID: [8]byte{2}, TraceFlags: trace.FlagsSampled})
		in, err := w.p.Activate(trace.ContextWithRemoteSpanContext(t.Context(), parent), platform.Request{Function: fire, Node: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		start := w.sent[0].GetStart()
		if start.GetId() != in.ID || start.GetTraceparent() != "00-01000000000000000000000000000000-0200000000000000-01" {
			t.Errorf("start is %v", start)
		}
		m := start.GetFunction()
		if m.GetName() != fire || m.GetGeneration() != 1 || m.GetImage() != f.Image || !m.GetHasInput() ||
			m.GetReadyTimeout().AsDuration() != f.Policy.ReadyTimeout || m.GetRequestTimeout().AsDuration() != f.RequestTimeout {
			t.Errorf("function is %v", m)
		}
		f.Policy.Input, f.Policy.BodyInput = "", true
		if m := Message(f); m.GetHasInput() || !m.GetBodyInput() {
			t.Errorf("function is %v", m)
		}
	})
}

// A node that cannot be told refuses the request and leaves nothing half-placed.
func TestANodeThatTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		w.Deploy(fireFunction())
		w.mu.Lock()
		clear(w.connected) // the stream breaks; the platform has not heard of it
		w.mu.Unlock()
		_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"})
		if got := refusalText(err); got != "503 NodeUnavailable []: node edge does not take instances now; try again" {
			t.Errorf("refused: %s", got)
		}
		if st := w.p.State(); len(st.Instances) != 0 {
			t.Errorf("instances: %+v", st.Instances)
		}
	})
}

func TestIDsAreContainerdsAndTellTheGeneration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`)
		f := platform.Function{Name: label.Draw(t, "namespace") + "/" + label.Draw(t, "name"), Generation: rapid.Int64Min(1).Draw(t, "generation")}
		id := newID(f)
		if err := identifiers.Validate(id); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(id, idPrefix(f)) || id == newID(f) {
			t.Fatalf("id %q of %q", id, idPrefix(f))
		}
		other := f
		other.Generation = rapid.Int64Min(1).Filter(func(g int64) bool { return g != f.Generation }).Draw(t, "other generation")
		if strings.HasPrefix(id, idPrefix(other)) {
			t.Fatalf("id %q also counts as generation %d", id, other.Generation)
		}
	})
}

func TestActivateWaitsForTheNodesFromBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.Join("cloud")
		w.restart()

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.p.Activate(impatient, platform.Request{Function: fire, Node: "cloud"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("activation before the nodes are back: %v", err)
		}
		bound := make(chan platform.Instance, 1)
		go func() {
			got, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "cloud"})
			if err != nil {
				t.Error(err)
			}
			bound <- got
		}()
		w.Join("cloud")
		synctest.Wait()
		select {
		case got := <-bound:
			t.Fatalf("bound to %+v while a node is missing", got)
		case <-w.p.Recovered():
			t.Fatal("recovered while a node is missing")
		default:
		}
		w.Join("edge")
		if got := <-bound; got != in {
			t.Errorf("bound to %+v, want the one that runs, %+v", got, in)
		}
		<-w.p.Recovered()
	})
}

func TestActivateDoesNotWaitForeverForANode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.hot("edge")
		w.Join("cloud")
		for range 2 { // the second start does not wait for edge at all
			w.restart()
			began := time.Now()
			w.Join("cloud")
			w.activate(fire, "cloud")
			if waited := time.Since(began); waited > recoverTimeout {
				t.Errorf("waited %s", waited)
			}
		}
		began := time.Now()
		w.restart()
		w.Join("cloud")
		<-w.p.Recovered()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %s for a node that did not come the last time", waited)
		}
	})
}

func TestNobodyIsAwaitedOnAFirstStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		select {
		case <-w.p.Recovered():
		default:
			t.Error("not recovered")
		}
		if d := cmp.Diff(platform.State{}, w.p.State()); d != "" {
			t.Error(d)
		}
	})
}
