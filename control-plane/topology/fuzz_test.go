package topology_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

// Whatever a node reports, distances stay such as there are, and those between others stay as they were.
func FuzzReport(f *testing.F) {
	for _, r := range []*nodeapi.RoundTrips{
		{Measured: []*nodeapi.RoundTrip{measured("a", 5*time.Millisecond)}, Coordinate: at(3)},
		{Measured: []*nodeapi.RoundTrip{{Node: "a", RttUs: -1}, {Node: "liar"}, {Node: "a", RttUs: 1, Age: durationpb.New(-time.Hour)}}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var said nodeapi.RoundTrips
		if proto.Unmarshal(data, &said) != nil {
			return
		}
		w := newWorld("a", "b", "liar")
		w.Report("a", &nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measured("b", 7*time.Millisecond)}}, start)
		before := w.RTT("a", "b", start)
		w.Report("liar", &said, start)
		if now := w.RTT("a", "b", start); now != before {
			t.Errorf("from a to b it was %v, and is %v", before, now)
		}
		for _, pair := range [][2]string{{"liar", "a"}, {"b", "liar"}} {
			if e := w.RTT(pair[0], pair[1], start); e.RTT < 0 || e.RTT > 2*coordinate.LongestRTT {
				t.Errorf("%v: %v", pair, e)
			}
		}
	})
}
