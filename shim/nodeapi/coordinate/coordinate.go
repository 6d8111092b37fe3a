// Package coordinate places nodes in a space in which distances are round-trip times, so
// that n nodes know about all n² pairs from a few measurements each: Vivaldi (Dabek et
// al., SIGCOMM 2004) as serf has it, with heights for access links and gravity against
// drift (Ledlie et al., "Network Coordinates in the Wild", NSDI 2007).
//
// A node moves its own coordinate by its own measurements. What others say of theirs is
// outside input: only Parse makes a Point of it.
package coordinate

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	vivaldi "github.com/hashicorp/serf/coordinate"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// Dimensions of the space besides the height: where more stop to help (Ledlie et al.,
	// section 5.1).
	Dimensions = 8
	// LongestRTT is what a measurement may be at most. Nothing on Earth is that far; it
	// waited in a queue, or lies.
	LongestRTT = 4 * time.Second
	// ErrorMost is the error of a node that knows nothing yet, as serf has it.
	ErrorMost = 1.5

	// farthest is how far from the origin a coordinate may be in each dimension, in
	// seconds: two on opposite sides are LongestRTT apart.
	farthest = float64(LongestRTT) / float64(time.Second) / 2
	// shortest is what no round trip is below, not even on one machine.
	shortest = time.Microsecond
	// birthplace is within how many seconds of the origin nodes begin: each in a place of
	// its own, because two in one place do not know in which direction to part.
	birthplace = 1e-3
)

// Point is where a node is. The zero Point is nowhere.
type Point struct{ at *vivaldi.Coordinate }

// ErrNoPoint means that a coordinate is none that an honest node has.
var ErrNoPoint = errors.New("not a coordinate")

// Parse takes what another node says of itself.
func Parse(m *nodeapi.Coordinate) (Point, error) {
	if len(m.GetVector()) != Dimensions {
		return Point{}, fmt.Errorf("%w: %d dimensions", ErrNoPoint, len(m.GetVector()))
	}
	within := func(v, least, most float64) bool { return v >= least && v <= most } // NaN is not
	for _, v := range m.Vector {
		if !within(v, -farthest, farthest) {
			return Point{}, fmt.Errorf("%w: %g s from the origin", ErrNoPoint, v)
		}
	}
	if !within(m.Height, 0, farthest) || !within(m.Adjustment, -farthest, farthest) || !within(m.Error, 0, ErrorMost) {
		return Point{}, fmt.Errorf("%w: height %g s, adjustment %g s, error %g", ErrNoPoint, m.Height, m.Adjustment, m.Error)
	}
	at := &vivaldi.Coordinate{Vec: append([]float64(nil), m.Vector...), Height: m.Height, Adjustment: m.Adjustment, Error: m.Error}
	return Point{at}, nil
}

// Message is the point in words; nil of the zero Point.
func (p Point) Message() *nodeapi.Coordinate {
	if p.at == nil {
		return nil
	}
	return &nodeapi.Coordinate{
		Vector: append([]float64(nil), p.at.Vec...), Height: p.at.Height, Adjustment: p.at.Adjustment,
		Error: p.at.Error,
	}
}

// Known tells whether the point is anywhere.
func (p Point) Known() bool { return p.at != nil }

// Error is how wrong the point's distances may be, relative to them: of a node that is at
// home in its network some hundredths, of one that knows nothing ErrorMost.
func (p Point) Error() float64 {
	if p.at == nil {
		return ErrorMost
	}
	return p.at.Error
}

// RTT is the round-trip time between two points that are known, never 0.
func (p Point) RTT(q Point) time.Duration { return max(p.at.DistanceTo(q.at), shortest) }

// Moved is by how much round-trip times to p differ at most from those to from.
func (p Point) Moved(from Point) time.Duration {
	if p.at == nil || from.at == nil {
		return LongestRTT
	}
	var square float64
	for i, v := range p.at.Vec {
		square += (v - from.at.Vec[i]) * (v - from.at.Vec[i])
	}
	by := math.Sqrt(square) + math.Abs(p.at.Height-from.at.Height) + math.Abs(p.at.Adjustment-from.at.Adjustment)
	return time.Duration(by * float64(time.Second))
}

// Self is a node's own coordinate. Its methods may be called at the same time.
type Self struct {
	mu     sync.Mutex
	client *vivaldi.Client
}

// New returns a node that has measured nothing. Of one name it begins at the same place
// each time.
func New(name string) *Self {
	config := vivaldi.DefaultConfig()
	config.Dimensionality = Dimensions
	config.VivaldiErrorMax = ErrorMost
	config.LatencyFilterSize = 1 // who measures filters by itself
	client, err := vivaldi.NewClient(config)
	if err != nil {
		panic(err) // the configuration above is wrong
	}
	born := vivaldi.NewCoordinate(config)
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	where := rand.New(rand.NewPCG(h.Sum64(), 0))
	for i := range born.Vec {
		born.Vec[i] = birthplace * (2*where.Float64() - 1)
	}
	if err := client.SetCoordinate(born); err != nil {
		panic(err) // as above
	}
	return &Self{client: client}
}

// Observe moves the node by a round-trip time to a peer that is at that point.
func (s *Self) Observe(peer Point, rtt time.Duration) error {
	if !peer.Known() || rtt <= 0 || rtt > LongestRTT {
		return fmt.Errorf("a round trip of %s to a peer at %v is no measurement", rtt, peer.Message())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The name is of serf's own filter, which is off: with one name for all it keeps one
	// sample instead of one for each node that ever was.
	if _, err := s.client.Update("", peer.at, max(rtt, shortest)); err != nil {
		return fmt.Errorf("moving the coordinate: %w", err)
	}
	return s.within()
}

// within keeps the node in the space that others accept it in. Who is pushed out by peers
// that lie begins anew.
func (s *Self) within() error {
	at := s.client.GetCoordinate()
	_, err := Parse(&nodeapi.Coordinate{Vector: at.Vec, Height: at.Height, Adjustment: at.Adjustment, Error: at.Error})
	if err == nil {
		return nil
	}
	for i := range at.Vec {
		at.Vec[i] = math.Mod(at.Vec[i], birthplace)
		if math.IsNaN(at.Vec[i]) {
			at.Vec[i] = birthplace
		}
	}
	at.Height, at.Adjustment, at.Error = 0, 0, ErrorMost
	return s.client.SetCoordinate(at)
}

// Point is where the node is now.
func (s *Self) Point() Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Point{s.client.GetCoordinate()}
}
