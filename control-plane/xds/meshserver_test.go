package xds

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// dialMesh serves a MeshServer that knows the peer as "edge", and connects to it.
func dialMesh(t *testing.T) (*MeshServer, *grpc.ClientConn) {
	t.Helper()
	m := NewMesh(MeshConfig{IngressSocket: ingressPath, Verify: func(_ context.Context, id string) error {
		if id != edge.ID {
			return errors.New("another's certificate")
		}
		return nil
	}}, slog.New(slog.DiscardHandler))
	return m, dialTo(t, m.Register)
}

func updateMesh(t *testing.T, m *MeshServer, st platform.State) {
	t.Helper()
	if err := m.Update(st); err != nil {
		t.Fatal(err)
	}
}

// changes receives the next response and acknowledges it: each assignment's version, and
// what is removed.
func (e *envoy) changes() (changed map[string]string, removed []string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	changed = map[string]string{}
	for _, res := range r.GetResources() {
		changed[res.GetName()] = res.GetVersion()
	}
	return changed, r.GetRemovedResources()
}

func (e *envoy) wantChanged(names ...string) map[string]string {
	e.t.Helper()
	changed, removed := e.changes()
	if got := slices.Sorted(maps.Keys(changed)); !slices.Equal(got, names) || len(removed) > 0 {
		e.t.Errorf("changed %q, removed %q, want %q changed", got, removed, names)
	}
	return changed
}

func meshState(instances ...platform.Instance) platform.State {
	return platform.State{Functions: []platform.Function{inMesh(video()), inMesh(thumbs())}, Instances: instances}
}

// A node hears all once, and then what changes.
func TestMeshUpdatesReachTheNodes(t *testing.T) {
	m, conn := dialMesh(t)
	e := connect(t, conn)
	e.subscribe("*") // before anything is known
	updateMesh(t, m, meshState())
	before := e.wantChanged("default/thumbs:80", "default/video:80")
	updateMesh(t, m, meshState()) // nothing new: the next response is of what follows
	updateMesh(t, m, meshState(ready(video(), "a", "10.0.0.1:80")))
	e.wantChanged("default/video:80")
	if err := m.Update(meshState(ready(video(), "a", "10.0.0.1:80"), ready(video(), "b", "nowhere"), ready(thumbs(), "c", "10.0.0.2:80"))); err == nil {
		t.Error("a wrong address is no error")
	}
	e.wantChanged("default/thumbs:80")
	updateMesh(t, m, platform.State{Functions: []platform.Function{inMesh(video())}})
	changed, removed := e.changes()
	if !slices.Equal(removed, []string{"default/thumbs:80"}) || len(changed) != 1 || changed["default/video:80"] != before["default/video:80"] {
		t.Errorf("changed %v, removed %q", changed, removed)
	}
	// A node that has it all already, from a control plane before this one.
	e.close()
	e = connect(t, conn)
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: changed})
	e.wantChanged()
}

// A control plane that knows nothing yet takes nothing away.
func TestMeshSaysNothingBeforeTheFirstState(t *testing.T) {
	m, conn := dialMesh(t)
	e := connect(t, conn)
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"},
		InitialResourceVersions: map[string]string{"default/video:80": "of before"}})
	updateMesh(t, m, platform.State{Functions: []platform.Function{inMesh(video())}})
	e.wantChanged("default/video:80")
}

func TestMeshRefusesStrangers(t *testing.T) {
	node := func(id string) *core.Node { return &core.Node{Id: id} }
	for name, c := range map[string]struct {
		request *discovery.DeltaDiscoveryRequest
		want    codes.Code
	}{
		"another node": {&discovery.DeltaDiscoveryRequest{Node: node("cloud"), TypeUrl: resource.EndpointType}, codes.PermissionDenied},
		"no node":      {&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}, codes.InvalidArgument},
		"another type": {&discovery.DeltaDiscoveryRequest{Node: node("edge"), TypeUrl: resource.ClusterType}, codes.InvalidArgument},
	} {
		m, conn := dialMesh(t)
		updateMesh(t, m, meshState())
		e := connect(t, conn)
		e.send(c.request)
		if got := e.refused(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
