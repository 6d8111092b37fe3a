package xds

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/signals"
)

func report(cluster string, localities ...[2]uint64) *endpoint.ClusterStats {
	c := &endpoint.ClusterStats{ClusterName: cluster}
	for _, l := range localities {
		c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, &endpoint.UpstreamLocalityStats{TotalRequestsInProgress: l[0], TotalIssuedRequests: l[1]})
	}
	return c
}

func known(name string) bool {
	return name == "default/a" || name == "default/b" || name == "default/idle"
}

func TestLoads(t *testing.T) {
	got := loads([]*endpoint.ClusterStats{
		report("headstart-ingress", [2]uint64{9, 9}),
		report("default/b", [2]uint64{1, 0}, [2]uint64{2, 5}),
		report("default/idle", [2]uint64{0, 0}),
		report("default/gone", [2]uint64{1, 1}),
		report("default/a", [2]uint64{0, 1}),
		report("default/a", [2]uint64{4, 0}),
		nil,
	}, known)
	want := []signals.Load{{Function: "default/a", InFlight: 4, Issued: 1}, {Function: "default/b", InFlight: 3, Issued: 5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of what endpoints had, the gateway's own daemon is left out.
func TestLoadsOfEndpoints(t *testing.T) {
	at := func(a *core.Address, inFlight, succeeded, failed uint64) *endpoint.UpstreamEndpointStats {
		return &endpoint.UpstreamEndpointStats{Address: a, TotalRequestsInProgress: inFlight, TotalSuccessfulRequests: succeeded, TotalErrorRequests: failed}
	}
	c := report("default/a", [2]uint64{3, 9})
	c.LoadReportInterval = durationpb.New(2 * time.Second)
	c.UpstreamLocalityStats[0].UpstreamEndpointStats = []*endpoint.UpstreamEndpointStats{
		at(socketAddress("10.0.0.1", 8080), 2, 6, 1), at(pipe("/run/ingress.sock"), 1, 2, 0), at(nil, 7, 7, 7)}
	want := []signals.Load{{Function: "default/a", InFlight: 3, Issued: 9, Endpoints: []signals.EndpointLoad{{Address: "10.0.0.1:8080", InFlight: 2, Succeeded: 3, Failed: 0.5}}}}
	if diff := cmp.Diff(want, loads([]*endpoint.ClusterStats{c}, known)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.LoadReportInterval = durationpb.New(-time.Second)
	if got := loads([]*endpoint.ClusterStats{c}, known); len(got) != 1 || len(got[0].Endpoints) > 0 {
		t.Errorf("of no time: %+v", got)
	}
}

// No report makes more of the platform's functions than there are.
func FuzzLoads(f *testing.F) {
	seed, err := proto.Marshal(&loadstats.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{report("default/a", [2]uint64{1, 2}), report("x")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r loadstats.LoadStatsRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		last := ""
		for _, l := range loads(r.GetClusterStats(), known) {
			if !known(l.Function) || l.Function <= last {
				t.Fatalf("%q after %q", l.Function, last)
			}
			last = l.Function
		}
	})
}
