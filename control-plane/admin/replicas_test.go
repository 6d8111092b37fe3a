package admin_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// ofAll is a client of these control planes by their names; nil is one that is away.
func ofAll(t *testing.T, backends map[string]*backend) *admin.Client {
	t.Helper()
	sockets := map[string]string{}
	var names []string
	for name, b := range backends {
		names = append(names, name)
		if b != nil {
			sockets[name] = serve(t, b)
		}
	}
	c := admin.NewClientOfAll(func(context.Context) ([]string, error) { return names, nil }, func(ctx context.Context, name string) (net.Conn, error) {
		if sockets[name] == "" {
			return nil, errors.New(name + " is away")
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", sockets[name])
	})
	t.Cleanup(c.Close)
	return c
}

// The status is that of the one in charge, and says of each control plane and node how it is
// connected.
func TestStatusOfSeveral(t *testing.T) {
	node := func(name, version string) admin.Node { return admin.Node{Name: name, Version: version} }
	follower := &backend{status: admin.Status{Version: "v1", Nodes: []admin.Node{node("edge", "old"), node("far", "v1")},
		Routing: []routing.Problem{{Gateways: []string{"edge"}, Message: "is known better"}, {Gateways: []string{"edge", "far"}, Message: "refused"}}}}
	leader := &backend{status: admin.Status{Version: "v2", InCharge: true, Nodes: []admin.Node{node("cloud", "v1"), node("edge", "v1")},
		Routing: []routing.Problem{{Gateways: []string{"cloud"}, Message: "refused"}}}}
	got, err := ofAll(t, map[string]*backend{"a": follower, "b": leader, "c": nil}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := admin.Status{Version: "v2", InCharge: true,
		ControlPlanes: []admin.ControlPlane{{Name: "a", Version: "v1", Nodes: 2}, {Name: "b", InCharge: true, Version: "v2", Nodes: 2}, {Name: "c", Problem: "c is away"}},
		Nodes:         []admin.Node{{Name: "cloud", Version: "v1", Away: []string{"a"}}, node("edge", "v1"), {Name: "far", Version: "v1", Away: []string{"b"}}},
		Routing:       []routing.Problem{{Gateways: []string{"cloud"}, Message: "refused"}, {Gateways: []string{"far"}, Message: "refused"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got, err = ofAll(t, map[string]*backend{"a": follower, "b": nil}).Status(t.Context())
	if err != nil || got.InCharge || got.Version != "v1" || got.ControlPlanes[1].Problem != "b is away" {
		t.Errorf("without the one in charge: %+v, %v", got, err)
	}
	if _, err := ofAll(t, map[string]*backend{"a": nil, "b": nil}).Status(t.Context()); err == nil || err.Error() != "a is away" {
		t.Errorf("without any: %v", err)
	}
}

// A trace's spans may have gone to several of them.
func TestTraceOfSeveral(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	part := func(spans ...trace.Span) trace.Trace { return trace.Trace{ID: id, Spans: spans} }
	gateway, daemon := trace.Span{Name: "gateway", ID: "1", Status: trace.OK}, trace.Span{Name: "activation", ID: "2", Parent: "1", Status: trace.OK}
	fetch := trace.Span{Name: "fetch", ID: "3", Parent: "2", Status: trace.OK}
	c := ofAll(t, map[string]*backend{"a": {trace: part(gateway)}, "b": {trace: part(daemon, fetch), request: "request-1"}, "c": {}, "d": nil})
	for _, by := range []string{id, "request-1"} {
		got, err := c.Trace(t.Context(), by)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(part(gateway, daemon, fetch), got); d != "" {
			t.Errorf("by %s: %s", by, d)
		}
	}
	if _, err := c.Trace(t.Context(), "unknown"); err == nil || !strings.Contains(err.Error(), "no such trace") {
		t.Errorf("error is %v", err)
	}
	// One that knows why there is none says more than one that does not know.
	c = ofAll(t, map[string]*backend{"a": {}, "b": {absent: trace.NotSampled}, "c": {}, "d": nil})
	if _, err := c.Trace(t.Context(), "unsampled"); err == nil || err.Error() != trace.NotSampled.Error() {
		t.Errorf("error is %v", err)
	}
}

// Each lists what it has got.
func TestTracesOfSeveral(t *testing.T) {
	one, two := trace.Summary{ID: "1", Status: trace.OK, DurationMS: 5}, trace.Summary{ID: "2", Status: trace.OK, DurationMS: 9}
	list := func(s trace.Summary) trace.Listing {
		return trace.Listing{Latest: []trace.Summary{s}, Slowest: []trace.Summary{s}, Kept: 1}
	}
	got, err := ofAll(t, map[string]*backend{"a": {traces: list(one)}, "b": {traces: list(two)}, "c": nil}).Traces(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]trace.Summary{two, one}, got.Slowest); d != "" {
		t.Error(d)
	}
}

// What only has to be answered by one goes to one that answers; what changes something is said
// once.
func TestOthersOfSeveral(t *testing.T) {
	b := &backend{}
	c := ofAll(t, map[string]*backend{"a": nil, "b": b})
	if err := c.Delete(t.Context(), "default/fire"); err == nil || err.Error() != "a is away" || b.deleted != "" {
		t.Errorf("%v, deleted %q", err, b.deleted)
	}
	cause := errors.New("no pod is ready")
	c = admin.NewClientOfAll(func(context.Context) ([]string, error) { return nil, cause }, nil)
	if _, err := c.Status(t.Context()); !errors.Is(err, cause) {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), "default/fire"); !errors.Is(err, cause) {
		t.Error(err)
	}
}
