package topology_test

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

var start = time.Unix(1_000_000, 0)

// at is a coordinate that many milliseconds along a line, from which all nodes are distant
// by the differences.
func at(milliseconds float64) *nodeapi.Coordinate {
	m := &nodeapi.Coordinate{Vector: make([]float64, coordinate.Dimensions), Error: 0.05}
	m.Vector[0] = milliseconds / 1000
	return m
}

func measured(peer string, rtt time.Duration) *nodeapi.RoundTrip { return measuredBefore(peer, rtt, 0) }

func measuredBefore(peer string, rtt, age time.Duration) *nodeapi.RoundTrip {
	return &nodeapi.RoundTrip{Node: peer, RttUs: rtt.Microseconds(), Age: durationpb.New(age)}
}

// world is a map, and what it refused.
type world struct {
	*topology.Map
	refused map[topology.Reason]int
}

func newWorld(names ...string) world {
	w := world{refused: map[topology.Reason]int{}}
	w.Map = topology.New(func(_ string, r topology.Reason) { w.refused[r]++ })
	for _, name := range names {
		w.Join(name)
	}
	return w
}

func (w world) want(t *testing.T, from, to string, now time.Time, rtt time.Duration, s topology.Source) {
	t.Helper()
	e := w.RTT(from, to, now)
	if e.Source != s || e.RTT < rtt*99/100 || e.RTT > rtt*101/100 {
		t.Errorf("%s to %s: %s (%s), want %s (%s)", from, to, e.RTT, e.Source, rtt, s)
	}
}

func TestBestSourceCounts(t *testing.T) {
	w := newWorld("a", "b", "c", "d", "silent")
	w.Report(
		"a",
		&nodeapi.RoundTrips{Coordinate: at(0), Measured: []*nodeapi.RoundTrip{measured("b", 7*ms), measured("c", ms)}},
		start,
	)
	w.Report("b", &nodeapi.RoundTrips{Coordinate: at(10), Measured: []*nodeapi.RoundTrip{measured("a", 8*ms)}}, start)
	w.Report("c", &nodeapi.RoundTrips{Coordinate: at(30)}, start)
	w.Report("d", &nodeapi.RoundTrips{Coordinate: at(50), Measured: []*nodeapi.RoundTrip{measured("c", 2*ms)}}, start)
	w.want(t, "a", "a", start, 0, topology.Itself)
	w.want(t, "a", "b", start, 7*ms, topology.Own)
	w.want(t, "b", "a", start, 8*ms, topology.Own)
	w.want(t, "c", "a", start, ms, topology.Other)
	w.want(t, "b", "c", start, 20*ms, topology.Coordinates)
	w.want(t, "a", "d", start, 3*ms, topology.Detour) // which is less than 50
	w.want(t, "d", "a", start, 3*ms, topology.Detour)
	for _, pair := range [][2]string{{"a", "silent"}, {"silent", "a"}, {"a", "stranger"}, {"stranger", "stranger"}} {
		w.want(t, pair[0], pair[1], start, 0, topology.Unknown)
	}
	if len(w.refused) > 0 {
		t.Errorf("%v", w.refused)
	}
}

// What is not told anew is less and less sure, then it does not count.
func TestSilentNodesDecay(t *testing.T) {
	w := newWorld("a", "b")
	w.Report(
		"a",
		&nodeapi.RoundTrips{Coordinate: at(0), Measured: []*nodeapi.RoundTrip{measuredBefore("b", 7*ms, time.Minute)}},
		start,
	)
	w.Report("b", &nodeapi.RoundTrips{Coordinate: at(10)}, start)
	w.Leave("a")
	before := w.RTT("a", "b", start)
	if before.Age != time.Minute {
		t.Errorf("%+v", before)
	}
	for _, step := range []struct {
		after time.Duration
		want  topology.Source
	}{{3 * time.Minute, topology.Own}, {5 * time.Minute, topology.Coordinates}, {10 * time.Minute, topology.Coordinates}, {16 * time.Minute, topology.Unknown}} {
		now := start.Add(step.after)
		w.Expire(now)
		e := w.RTT("a", "b", now)
		if e.Source != step.want || e.Error <= before.Error || e.Source != topology.Unknown && e.Age < step.after {
			t.Errorf("after %s: %+v, before %+v", step.after, e, before)
		}
		before = e
	}
	if w.Report(
		"a", &nodeapi.RoundTrips{Coordinate: at(0)}, start.Add(17*time.Minute),
	); w.RTT("a", "b", start.Add(17*time.Minute)).Source != topology.Unknown {
		t.Error("a node that left is believed")
	}
}

// A daemon that is replaced does not know at first where it is, and says nothing. The one
// before did.
func TestNewbornDaemonIsWhereTheOneBeforeWas(t *testing.T) {
	w := newWorld("a", "b")
	w.Report("a", &nodeapi.RoundTrips{Coordinate: at(0)}, start)
	w.Report("b", &nodeapi.RoundTrips{Coordinate: at(10)}, start)
	w.Report("b", &nodeapi.RoundTrips{}, start)
	w.want(t, "a", "b", start, 10*ms, topology.Coordinates)
	if len(w.refused) > 0 {
		t.Errorf("%v", w.refused)
	}
}

func TestHostileReportsDoNotCount(t *testing.T) {
	nan := at(0)
	nan.Vector[2] = math.NaN()
	far := at(1e9)
	short := at(0)
	short.Vector = short.Vector[:3]
	many := make([]*nodeapi.RoundTrip, 1000)
	for i := range many {
		many[i] = measured("c", 5*ms)
	}
	for name, c := range map[string]struct {
		report *nodeapi.RoundTrips
		reason topology.Reason
	}{
		"coordinate that is no number":  {&nodeapi.RoundTrips{Coordinate: nan}, topology.CoordinateInvalid},
		"coordinate off the Earth":      {&nodeapi.RoundTrips{Coordinate: far}, topology.CoordinateInvalid},
		"coordinate of another space":   {&nodeapi.RoundTrips{Coordinate: short}, topology.CoordinateInvalid},
		"negative round trip":           {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measured("b", -ms)}}, topology.RTTInvalid},
		"no round trip":                 {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measured("b", 0)}}, topology.RTTInvalid},
		"absurd round trip":             {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{{Node: "b", RttUs: math.MaxInt64}}}, topology.RTTInvalid},
		"round trip of the future":      {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measuredBefore("b", ms, -time.Second)}}, topology.RTTStale},
		"round trip of long ago":        {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measuredBefore("b", ms, time.Hour)}}, topology.RTTStale},
		"round trip to nobody":          {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measured("stranger", ms)}}, topology.PeerUnknown},
		"round trip to the node itself": {&nodeapi.RoundTrips{Measured: []*nodeapi.RoundTrip{measured("a", ms)}}, topology.PeerUnknown},
		"more peers than a daemon has":  {&nodeapi.RoundTrips{Measured: many}, topology.TooMany},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("a", "b", "c")
			w.Report("b", &nodeapi.RoundTrips{Coordinate: at(10)}, start)
			w.Report("a", &nodeapi.RoundTrips{Coordinate: at(0)}, start)
			w.Report("a", c.report, start)
			if diff := cmp.Diff(map[topology.Reason]int{c.reason: 1}, w.refused); diff != "" {
				t.Error(diff)
			}
			w.want(t, "a", "b", start, 10*ms, topology.Coordinates)
		})
	}
}

// A node that lies about its way to others spoils nobody else's.
func TestLiarSpoilsItsOwnWaysOnly(t *testing.T) {
	w := newWorld("a", "b", "liar")
	honest := func() {
		w.Report(
			"a", &nodeapi.RoundTrips{Coordinate: at(0), Measured: []*nodeapi.RoundTrip{measured("liar", 50*ms)}}, start,
		)
		w.Report(
			"b", &nodeapi.RoundTrips{Coordinate: at(80), Measured: []*nodeapi.RoundTrip{measured("liar", 40*ms)}},
			start,
		)
	}
	honest()
	w.Report(
		"liar",
		&nodeapi.RoundTrips{
			Coordinate: at(45),
			Measured:   []*nodeapi.RoundTrip{measured("a", time.Microsecond), measured("b", time.Microsecond)},
		},
		start,
	)
	honest()
	w.want(t, "a", "b", start, 80*ms, topology.Coordinates) // and not two microseconds by the liar
	w.want(t, "a", "liar", start, 50*ms, topology.Own)
	w.want(t, "b", "liar", start, 40*ms, topology.Own)
}

// A coordinate is believed as far as those who measured their way to it bear it out.
func TestContradictedCoordinate(t *testing.T) {
	names := []string{"w0", "w1", "w2", "w3", "w4"}
	w := newWorld(append(names, "liar", "asks")...)
	for i, name := range names {
		w.Report(
			name,
			&nodeapi.RoundTrips{
				Coordinate: at(float64(i)),
				Measured:   []*nodeapi.RoundTrip{measured("liar", time.Duration(200+10*i)*ms)},
			},
			start,
		)
	}
	w.Report("asks", &nodeapi.RoundTrips{Coordinate: at(20)}, start)
	honest := at(200)
	w.Report("liar", &nodeapi.RoundTrips{Coordinate: honest}, start)
	w.want(t, "asks", "liar", start, 180*ms, topology.Coordinates)
	w.Report("liar", &nodeapi.RoundTrips{Coordinate: at(600)}, start) // farther than it is
	w.want(t, "asks", "liar", start, 220*ms, topology.Detour)         // by w0, who is 20 ms away
	w.want(t, "liar", "asks", start, 220*ms, topology.Detour)
	if w.refused[topology.CoordinateContradicted] != 1 {
		t.Errorf("%v", w.refused)
	}
	w.Report("liar", &nodeapi.RoundTrips{Coordinate: honest}, start)
	w.want(t, "asks", "liar", start, 180*ms, topology.Coordinates)
}

// A liar near everybody is not: it would draw all requests.
func TestNobodyIsNextDoorToEverybodyByItsOwnWord(t *testing.T) {
	w := newWorld("liar", "asks")
	for i := range 8 {
		name := "w" + strconv.Itoa(i)
		w.Join(name)
		w.Report(
			name,
			&nodeapi.RoundTrips{
				Coordinate: at(float64(10 * i)), Measured: []*nodeapi.RoundTrip{measured("liar", 100*ms)},
			},
			start,
		)
	}
	w.Report("asks", &nodeapi.RoundTrips{Coordinate: at(40)}, start)
	w.Report(
		"liar",
		&nodeapi.RoundTrips{Coordinate: at(40), Measured: []*nodeapi.RoundTrip{measured("asks", time.Microsecond)}},
		start,
	)
	for i := range 8 {
		w.Report(
			"w"+strconv.Itoa(i),
			&nodeapi.RoundTrips{
				Coordinate: at(float64(10 * i)), Measured: []*nodeapi.RoundTrip{measured("liar", 100*ms)},
			},
			start,
		)
	}
	w.Report(
		"liar",
		&nodeapi.RoundTrips{Coordinate: at(40), Measured: []*nodeapi.RoundTrip{measured("asks", time.Microsecond)}},
		start,
	)
	if e := w.RTT("asks", "liar", start); e.Source == topology.Other || e.RTT < 90*ms {
		t.Errorf("%+v", e)
	}
}

func TestNeighbours(t *testing.T) {
	w := newWorld("me")
	names := []string{"me"}
	for i := range 200 {
		name := "n" + strconv.Itoa(1000+i)
		names = append(names, name)
		w.Join(name)
		w.Report(name, &nodeapi.RoundTrips{Coordinate: at(float64(10 * i))}, start)
	}
	w.Report("me", &nodeapi.RoundTrips{Coordinate: at(0)}, start)
	traffic := []string{"n1190", "stranger", "me", "n1191", "n1191"}
	got := w.Neighbours("me", traffic, start)
	if len(got) != 32 || !slices.IsSorted(got) || slices.Contains(got, "me") || len(slices.Compact(slices.Clone(got))) != 32 {
		t.Fatalf("%d: %v", len(got), got)
	}
	for _, name := range []string{"n1190", "n1191", "n1000", "n1001", "n1015"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not among %v", name, got)
		}
	}
	if diff := cmp.Diff(got, w.Neighbours("me", traffic, start.Add(time.Second))); diff != "" {
		t.Errorf("others after a second: %s", diff)
	}
	later := w.Neighbours("me", traffic, start.Add(11*time.Minute))
	stayed := 0
	for _, name := range later {
		if slices.Contains(got, name) {
			stayed++
		}
	}
	if stayed < 18 || stayed > 26 {
		t.Errorf("%d of 32 stayed after a rotation", stayed)
	}
	w.Leave("n1001")
	if slices.Contains(w.Neighbours("me", traffic, start), "n1001") {
		t.Error("who has left is a neighbour")
	}
	// Those that have no coordinate yet have neighbours, too, and nobody is anybody's only one.
	asked := map[string]int{}
	for _, name := range names {
		for _, peer := range w.Neighbours(name, nil, start) {
			asked[peer]++
		}
	}
	for _, name := range names {
		if name != "n1001" && (asked[name] == 0 || asked[name] > 100) {
			t.Errorf("%s is asked by %d", name, asked[name])
		}
	}
	w.Join("new")
	if n := len(w.Neighbours("new", nil, start)); n != 32 {
		t.Errorf("a new node has %d neighbours", n)
	}
	if w.Neighbours("stranger", nil, start) != nil {
		t.Error("a stranger has neighbours")
	}
}

// Whatever nodes say, in whatever order they come and go: estimates are finite, positive
// where they are known, and what is forgotten is forgotten.
func TestAnythingMayBeSaid(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(t *rapid.T) {
		w, now := newWorld(names...), start
		name := rapid.SampledFrom(names)
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-0.1, 0.1))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "later")))
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				w.Leave(name.Draw(t, "leaves"))
			case 1:
				w.Join(name.Draw(t, "joins"))
			case 2:
				w.Expire(now)
			case 3:
				w.Neighbours(name.Draw(t, "of"), []string{name.Draw(t, "to")}, now)
			default:
				r := &nodeapi.RoundTrips{
					Coordinate: &nodeapi.Coordinate{
						Height: value.Draw(t, "height"), Adjustment: value.Draw(t, "adjustment"),
						Error: value.Draw(t, "error"),
					},
				}
				for range rapid.IntRange(6, 9).Draw(t, "dimensions") {
					r.Coordinate.Vector = append(r.Coordinate.Vector, value.Draw(t, "v"))
				}
				for range rapid.IntRange(0, 6).Draw(t, "peers") {
					r.Measured = append(r.Measured, &nodeapi.RoundTrip{Node: name.Draw(t, "peer"),
						RttUs: rapid.Int64().Draw(t, "rtt"),
						Age:   &durationpb.Duration{Seconds: rapid.Int64().Draw(t, "age"), Nanos: rapid.Int32().Draw(t, "nanos")}})
				}
				w.Report(name.Draw(t, "says"), r, now)
			}
			for _, a := range names {
				for _, b := range names {
					e := w.RTT(a, b, now)
					known := e.Source != topology.Unknown && e.Source != topology.Itself
					if known != (e.RTT > 0) || e.RTT > 4*coordinate.LongestRTT || e.Age < 0 || math.IsNaN(e.Error) || e.Error < 0 || e.Error > coordinate.ErrorMost {
						t.Fatalf("%s to %s: %+v", a, b, e)
					}
				}
			}
		}
		for _, name := range names {
			w.Leave(name)
		}
		w.Expire(now.Add(time.Hour))
		for _, name := range names[1:] {
			if e := w.RTT(names[0], name, now); e.Source != topology.Unknown {
				t.Fatalf("%+v after an hour", e)
			}
		}
	})
}
