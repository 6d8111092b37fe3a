package xds

import (
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
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
	want := []Load{{Function: "default/a", InFlight: 4, Issued: 1}, {Function: "default/b", InFlight: 3, Issued: 5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
