package coordinate_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

func at(first float64) *nodeapi.Coordinate {
	v := make([]float64, coordinate.Dimensions)
	v[0] = first
	return &nodeapi.Coordinate{Vector: v, Error: 0.1}
}

func TestCoordinatesThatNoHonestNodeHasAreRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, change := range map[string]func(*nodeapi.Coordinate){
		"none":                  func(m *nodeapi.Coordinate) { m.Vector = nil },
		"of another space":      func(m *nodeapi.Coordinate) { m.Vector = m.Vector[1:] },
		"of too many":           func(m *nodeapi.Coordinate) { m.Vector = append(m.Vector, 0) },
		"not a number":          func(m *nodeapi.Coordinate) { m.Vector[3] = nan },
		"infinite":              func(m *nodeapi.Coordinate) { m.Vector[3] = -inf },
		"off the Earth":         func(m *nodeapi.Coordinate) { m.Vector[3] = 1e6 },
		"height below zero":     func(m *nodeapi.Coordinate) { m.Height = -0.001 },
		"height not a number":   func(m *nodeapi.Coordinate) { m.Height = nan },
		"absurd height":         func(m *nodeapi.Coordinate) { m.Height = 60 },
		"absurd adjustment":     func(m *nodeapi.Coordinate) { m.Adjustment = -60 },
		"error below zero":      func(m *nodeapi.Coordinate) { m.Error = -1 },
		"error not a number":    func(m *nodeapi.Coordinate) { m.Error = nan },
		"error beyond the most": func(m *nodeapi.Coordinate) { m.Error = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			m := at(0.01)
			change(m)
			p, err := coordinate.Parse(m)
			if !errors.Is(err, coordinate.ErrNoPoint) || p.Known() {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

func TestPointIsWhatItSays(t *testing.T) {
	m := at(0.02)
	m.Height, m.Adjustment = 0.003, -0.001
	p, err := coordinate.Parse(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Vector[0] = 7 // the message stays the caller's
	want := at(0.02)
	want.Height, want.Adjustment = 0.003, -0.001
	if diff := cmp.Diff(want, p.Message(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if p.Error() != 0.1 || (coordinate.Point{}).Error() != coordinate.ErrorMost {
		t.Error("errors are not as said")
	}
}

// Two nodes learn their distance from nothing else than their measurements.
func TestTwoNodesFindTheirDistance(t *testing.T) {
	a, b := coordinate.New("a"), coordinate.New("b")
	const rtt = 50 * time.Millisecond
	for range 100 {
		if err := a.Observe(b.Point(), rtt); err != nil {
			t.Fatal(err)
		}
		if err := b.Observe(a.Point(), rtt); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.Point().RTT(b.Point()); got < rtt*95/100 || got > rtt*105/100 {
		t.Errorf("%s", got)
	}
	if a.Point().Error() > 0.1 {
		t.Errorf("an error of %g", a.Point().Error())
	}
}

func TestMeasurementsThatAreNone(t *testing.T) {
	a, b := coordinate.New("a"), coordinate.New("b")
	before := a.Point().Message()
	for _, rtt := range []time.Duration{0, -time.Second, coordinate.LongestRTT + 1, math.MaxInt64} {
		if a.Observe(b.Point(), rtt) == nil {
			t.Errorf("%s was taken", rtt)
		}
	}
	if a.Observe(coordinate.Point{}, time.Millisecond) == nil {
		t.Error("a peer that is nowhere was taken")
	}
	if diff := cmp.Diff(before, a.Point().Message(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Whatever peers say, a node's own coordinate stays one that others take, and distances
// are more than nothing.
func TestLiarsDoNotDriveANodeOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := coordinate.New("a")
		edge := rapid.SampledFrom([]float64{-2, -1, -1e-9, 0, 1e-9, 1, 2})
		for range rapid.IntRange(1, 200).Draw(t, "lies") {
			m := &nodeapi.Coordinate{Vector: make([]float64, coordinate.Dimensions)}
			for i := range m.Vector {
				m.Vector[i] = edge.Draw(t, "v")
			}
			m.Height, m.Adjustment = math.Abs(edge.Draw(t, "height")), edge.Draw(t, "adjustment")
			m.Error = rapid.Float64Range(0, coordinate.ErrorMost).Draw(t, "error")
			liar, err := coordinate.Parse(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Observe(liar, time.Duration(rapid.Int64Range(1, int64(coordinate.LongestRTT)).Draw(t, "rtt"))); err != nil {
				t.Fatal(err)
			}
			if _, err := coordinate.Parse(a.Point().Message()); err != nil {
				t.Fatal(err)
			}
			if a.Point().RTT(liar) <= 0 {
				t.Fatal("no distance")
			}
		}
	})
}

func TestNodesOfOneNameBeginAtOnePlace(t *testing.T) {
	if diff := cmp.Diff(
		coordinate.New("a").Point().Message(), coordinate.New("a").Point().Message(), protocmp.Transform(),
	); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(coordinate.New("a").Point().Message(), coordinate.New("b").Point().Message(), protocmp.Transform()) {
		t.Error("two begin at one place")
	}
}
