// Package topology knows how far nodes are from each other. Each of n nodes measures its
// way to a few others (Neighbours) and tells of that and of its coordinate (Report); RTT
// answers for any two.
//
// It is a core without clock and sockets. What nodes say is outside input: none of it is
// believed further than the node's own traffic goes, see RTT.
package topology

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

const (
	// measuredFor is how long a measurement counts: some times the longest interval between
	// two of a daemon's probes of one peer (64 s).
	measuredFor = 5 * time.Minute
	// placedFor is how long a coordinate counts that is not told anew; nodes tell theirs
	// each minute. Nodes seldom move, so it is long; meanwhile its error grows.
	placedFor = 15 * time.Minute
	// errorDoubles is in what time without news a coordinate's error doubles.
	errorDoubles = 5 * time.Minute
	// measurementError is the relative error of a fresh measurement: what is left of the
	// noise after the daemon's filter.
	measurementError = 0.03

	// measuredMost bounds what one node can tell; daemons tell of 128 peers at most.
	measuredMost = 128

	// A coordinate is not believed when those who measured their way to the node say
	// otherwise: at least witnessesLeast of them, more than half by a factor of two and by
	// more than contradiction, which honest coordinates are seldom off by within a site.
	// Nothing much is lost with one that is: its witnesses place it.
	witnessesLeast = 4
	contradiction  = 20 * time.Millisecond
)

// Reason is why something that a node said does not count.
type Reason string

// The reasons.
const (
	// CoordinateInvalid: not a number, of another space, or off the Earth.
	CoordinateInvalid Reason = "CoordinateInvalid"
	// CoordinateContradicted: those who measured their way to the node say otherwise.
	CoordinateContradicted Reason = "CoordinateContradicted"
	// RTTInvalid: nothing, negative, or more than coordinate.LongestRTT.
	RTTInvalid Reason = "RTTInvalid"
	// RTTStale: of the future, or older than counts.
	RTTStale Reason = "RTTStale"
	// PeerUnknown: no such node, or the node itself.
	PeerUnknown Reason = "PeerUnknown"
	// TooMany: more than a daemon has peers.
	TooMany Reason = "TooMany"
)

// Usual tells whether the reason comes up when nodes come and go: it is nobody's fault.
func (r Reason) Usual() bool { return r == PeerUnknown }

// Source is where an estimate is from.
type Source string

// The sources, from the best to none.
const (
	// Itself: both are one node.
	Itself Source = "itself"
	// Own: the first of the two has measured it.
	Own Source = "measured"
	// Other: the other one has.
	Other Source = "measured-by-peer"
	// Detour: by way of a third, which is shorter than their coordinates are apart, or
	// surer.
	Detour Source = "detour"
	// Coordinates: never measured.
	Coordinates Source = "coordinates"
	// Unknown: there is no estimate.
	Unknown Source = "unknown"
)

// Estimate is what is known of the way between two nodes.
type Estimate struct {
	// RTT is 0 for Itself and Unknown only.
	RTT    time.Duration
	Source Source
	// Age is since the oldest of what it is made of was measured or told.
	Age time.Duration
	// Error is how wrong RTT may be, relative to it; it grows with Age.
	Error float64
}

// Map is the network as its nodes tell it. Its methods may be called at the same time.
type Map struct {
	refused func(node string, r Reason)

	mu sync.RWMutex
	of map[string]*node
}

type node struct {
	name   string
	seed   uint64 // of the name
	joined bool
	point  coordinate.Point
	told   time.Time // when the point was
	doubt  bool      // the point is contradicted
	ways   map[string]way
	// witnesses are who measured their way to this node.
	witnesses map[string]bool
	near      map[string]bool // of the last Neighbours
}

type way struct {
	rtt time.Duration
	at  time.Time // of the sample, by this process's clock
}

// New returns the map of no nodes. refused hears what does not count; it must not call
// back, and may be nil.
func New(refused func(node string, r Reason)) *Map {
	if refused == nil {
		refused = func(string, Reason) {}
	}
	return &Map{refused: refused, of: map[string]*node{}}
}

// Join makes a node known that is connected: others may tell of it.
func (m *Map) Join(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of[name] == nil {
		m.of[name] = &node{name: name, seed: seed(name), ways: map[string]way{}, witnesses: map[string]bool{}, near: map[string]bool{}}
	}
	m.of[name].joined = true
}

// Leave says that a node is not connected any more. What is known of it grows old; Expire
// forgets it.
func (m *Map) Leave(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.of[name]; n != nil {
		n.joined = false
	}
}

// Report takes a node's word. Of one that has not joined it counts for nothing.
func (m *Map) Report(name string, r *nodeapi.RoundTrips, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of[name]
	if n == nil || !n.joined {
		return
	}
	measured := r.GetMeasured()
	if len(measured) > measuredMost {
		m.refused(name, TooMany)
		measured = measured[:measuredMost]
	}
	for _, said := range measured {
		peer, age := m.of[said.GetNode()], said.GetAge().AsDuration()
		switch {
		case peer == nil || peer == n:
			m.refused(name, PeerUnknown)
		case said.GetRttUs() <= 0 || said.GetRttUs() > coordinate.LongestRTT.Microseconds():
			m.refused(name, RTTInvalid)
		case age < 0 || age > measuredFor:
			m.refused(name, RTTStale)
		default:
			n.ways[peer.name] = way{time.Duration(said.GetRttUs()) * time.Microsecond, now.Add(-age)}
			peer.witnesses[name] = true
		}
	}
	n.trim(m.of, now)
	if len(r.GetCoordinate().GetVector()) == 0 {
		return // it has none yet
	}
	point, err := coordinate.Parse(r.GetCoordinate())
	if err != nil {
		m.refused(name, CoordinateInvalid)
		return
	}
	n.point, n.told = point, now
	n.doubt = m.contradicted(n, now)
	if n.doubt {
		m.refused(name, CoordinateContradicted)
	}
}

// trim forgets ways that no longer count, and the oldest of too many.
func (n *node) trim(of map[string]*node, now time.Time) {
	forget := func(peer string) {
		delete(n.ways, peer)
		if p := of[peer]; p != nil {
			delete(p.witnesses, n.name)
		}
	}
	for peer, w := range n.ways {
		if of[peer] == nil || now.Sub(w.at) > measuredFor {
			forget(peer)
		}
	}
	if len(n.ways) <= measuredMost {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(n.ways), func(a, b string) int { return n.ways[a].at.Compare(n.ways[b].at) })
	for _, peer := range oldest[:len(oldest)-measuredMost] {
		forget(peer)
	}
}

// contradicted tells whether those who measured their way to a node find it elsewhere than
// it says.
func (m *Map) contradicted(n *node, now time.Time) bool {
	asked, against := 0, 0
	for witness := range n.witnesses {
		w := m.of[witness]
		if w == nil || w.doubt || !w.placed(now) {
			continue
		}
		measured, fresh := w.way(n.name, now)
		if !fresh {
			continue
		}
		asked++
		said := w.point.RTT(n.point)
		if off := max(said-measured.rtt, measured.rtt-said); off > contradiction && off > min(said, measured.rtt) {
			against++
		}
	}
	return asked >= witnessesLeast && 2*against > asked
}

func (n *node) placed(now time.Time) bool {
	return n.point.Known() && now.Sub(n.told) <= placedFor
}

func (n *node) way(peer string, now time.Time) (w way, fresh bool) {
	w, known := n.ways[peer]
	return w, known && now.Sub(w.at) <= measuredFor
}

// RTT estimates the way from a node to another. Who is asked for its own way counts first:
// a node that lies about its peers spoils no way but its own. For the same reason the legs
// of a detour are the two nodes' own measurements, never the third's.
func (m *Map) RTT(from, to string, now time.Time) Estimate {
	m.mu.RLock()
	defer m.mu.RUnlock()
	a, b := m.of[from], m.of[to]
	switch {
	case a == nil || b == nil:
		return Estimate{Source: Unknown, Error: coordinate.ErrorMost}
	case a == b:
		return Estimate{Source: Itself}
	}
	if w, fresh := a.way(to, now); fresh {
		return w.estimate(Own, now)
	}
	if w, fresh := b.way(from, now); fresh && !b.doubt {
		return w.estimate(Other, now)
	}
	if a.doubt || b.doubt {
		return m.witnessed(a, b, now)
	}
	e := Estimate{Source: Unknown, Error: coordinate.ErrorMost}
	if a.placed(now) && b.placed(now) {
		e = between(a, b, now)
	}
	return a.detour(b, e, now)
}

// witnessed is the way between two nodes of which one's coordinate is contradicted: by way of
// who measured its way to that one and found it nearest.
func (m *Map) witnessed(a, b *node, now time.Time) Estimate {
	if !b.doubt {
		a, b = b, a
	}
	e := Estimate{Source: Unknown, Error: coordinate.ErrorMost}
	var least time.Duration
	for name := range b.witnesses {
		w := m.of[name]
		if w == nil || w.doubt || w == a || !w.placed(now) || !a.placed(now) {
			continue
		}
		last, fresh := w.way(b.name, now)
		if !fresh || least > 0 && last.rtt >= least {
			continue
		}
		least = last.rtt
		e = between(a, w, now)
		e.RTT, e.Source, e.Error = e.RTT+last.rtt, Detour, coordinate.ErrorMost
	}
	return e
}

func (w way) estimate(s Source, now time.Time) Estimate {
	age := max(now.Sub(w.at), 0)
	return Estimate{RTT: w.rtt, Source: s, Age: age, Error: aged(measurementError, age)}
}

func between(a, b *node, now time.Time) Estimate {
	age := max(now.Sub(a.told), now.Sub(b.told), 0)
	// Half each, as both are moved by the same measurements.
	return Estimate{RTT: a.point.RTT(b.point), Source: Coordinates, Age: age, Error: aged((a.point.Error()+b.point.Error())/2, age)}
}

// detour is what the shortest way by a third says, if that is less than e: coordinates of
// nodes within one site are further apart than the nodes.
func (n *node) detour(to *node, e Estimate, now time.Time) Estimate {
	few, many := n, to
	if len(few.ways) > len(many.ways) {
		few, many = many, few
	}
	for third := range few.ways {
		first, fresh := few.way(third, now)
		if !fresh {
			continue
		}
		second, fresh := many.way(third, now)
		if !fresh {
			continue
		}
		rtt, age := first.rtt+second.rtt, max(now.Sub(first.at), now.Sub(second.at), 0)
		// As a rule the direct way is no longer. Without coordinates that is all there is.
		if e.Source == Unknown || rtt < e.RTT {
			e = Estimate{RTT: rtt, Source: Detour, Age: age, Error: aged(2*measurementError+float64(min(first.rtt, second.rtt))/float64(rtt), age)}
		}
	}
	return e
}

// aged is an error that has had no news for a time.
func aged(relative float64, age time.Duration) float64 {
	return min(relative*math.Exp2(float64(age)/float64(errorDoubles)), coordinate.ErrorMost)
}

// Expire forgets nodes that have left and of which nothing counts any more.
func (m *Map) Expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.of {
		n.trim(m.of, now)
		if !n.joined && !n.placed(now) && len(n.ways) == 0 {
			delete(m.of, name) // those who measured their way to it forget that when they are trimmed
		}
	}
}
