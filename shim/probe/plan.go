// Package probe measures round-trip times to other nodes' daemons: from what the
// connections between them show anyway, and by at most Rate probes per second.
//
// Plan is the core: whom to ask when, and what the answers say. It has no clock and no
// sockets. Prober asks, Responder answers.
package probe

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

const (
	// Rate is how many probes a node sends per second at most.
	Rate = 8
	// spacing keeps to it in every second, not only on average.
	spacing = time.Second / Rate

	// PeersMost is how many peers are probed; the control plane names fewer.
	PeersMost = 64
	// passedMost is how many more are followed because they have traffic.
	passedMost = 64
	// KeptFor is how long a measurement is told after its last sample: some of the longest
	// intervals, so that one lost probe takes nothing away.
	KeptFor = 5 * time.Minute

	// reportEvery is how often news is told at most, refreshEvery how often what is no
	// news: the control plane forgets what is older than KeptFor.
	reportEvery  = 5 * time.Second
	refreshEvery = time.Minute
	// settledAfter is how many samples a daemon moves by before it tells where it is, or a
	// window of each peer if that is less: until then the control plane knows better from the
	// one before it. At full rate it is 8 s.
	settledAfter = 8 * Rate
	// movedBy is by which part of the mean round trip, and movedLeast how far at least, a
	// coordinate has to move to be news.
	movedBy    = 0.05
	movedLeast = 500 * time.Microsecond
)

// Peer is another node's daemon.
type Peer struct {
	Name    string // of its certificate
	Address string // host:port where it takes requests over
}

// Plan is whom to probe when, and what came of it. Its methods may be called at the same
// time.
type Plan struct {
	mu    sync.Mutex
	self  *coordinate.Self
	moves int // of self
	of    map[string]*pair
	free  time.Time // before it no probe may go out

	told     time.Time
	toldAt   coordinate.Point
	toldRTTs map[string]time.Duration
}

// NewPlan is the plan of the node of that name. It has no peers.
func NewPlan(name string) *Plan {
	return &Plan{self: coordinate.New(name), of: map[string]*pair{}, toldRTTs: map[string]time.Duration{}}
}

// SetPeers replaces whom to probe. Those beyond PeersMost, and those without a name, are left
// out.
func (p *Plan) SetPeers(peers []Peer, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.of {
		known.wanted = false
	}
	for _, peer := range peers[:min(len(peers), PeersMost)] {
		known := p.of[peer.Name]
		if known == nil && peer.Name != "" {
			known = &pair{interval: intervalFirst}
			p.of[peer.Name] = known
		}
		if known == nil {
			continue
		}
		if known.address != peer.Address {
			known.failures, known.due = 0, now
		}
		known.address, known.wanted = peer.Address, true
	}
	p.expire(now)
}

// Next takes the peer that is due longest. If there is none, ok is false; wait is then how
// long until there is one, as things stand. Whoever takes a peer calls Answered or Failed.
func (p *Plan) Next(now time.Time) (peer Peer, wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first string
	for name, known := range p.of {
		if !known.wanted || known.busy {
			continue
		}
		if first == "" || known.due.Before(p.of[first].due) || known.due.Equal(p.of[first].due) && name < first {
			first = name
		}
	}
	if first == "" {
		return Peer{}, intervalLongest, false
	}
	at := p.of[first].due
	if at.Before(p.free) {
		at = p.free
	}
	if at.After(now) {
		return Peer{}, at.Sub(now), false
	}
	p.free, p.of[first].busy = now.Add(spacing), true
	return Peer{Name: first, Address: p.of[first].address}, 0, true
}

// Answered takes a probe's round-trip time, and where the peer says that it is.
func (p *Plan) Answered(peer string, rtt time.Duration, at coordinate.Point, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of[peer]
	if known == nil {
		return
	}
	known.busy = false
	if !plausible(rtt) {
		known.fail(now)
		return
	}
	known.add(rtt, now)
	known.point = at
	p.move(known)
}

// Passed takes a round-trip time that a connection with traffic shows.
func (p *Plan) Passed(peer string, rtt time.Duration, now time.Time) {
	if !plausible(rtt) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of[peer]
	if known == nil {
		if len(p.of) >= PeersMost+passedMost {
			return
		}
		known = &pair{}
		p.of[peer] = known
	}
	known.add(rtt, now)
	p.move(known)
}

// move moves the node by what is known of one peer.
func (p *Plan) move(known *pair) {
	if known.point.Known() {
		// Both have been looked at already.
		_ = p.self.Observe(known.point, known.smoothed)
		p.moves++
	}
}

// Failed takes a probe without an answer.
func (p *Plan) Failed(peer string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of[peer]; known != nil {
		known.busy = false
		known.fail(now)
	}
}

// Point is where the node is.
func (p *Plan) Point() coordinate.Point { return p.self.Point() }

// Measured is what is known of all peers, by name: of each the smoothed least of its last
// samples.
func (p *Plan) Measured(now time.Time) []*nodeapi.RoundTrip {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.measured(now)
}

func (p *Plan) measured(now time.Time) (all []*nodeapi.RoundTrip) {
	for name, known := range p.of {
		if known.fresh(now) {
			age := max(now.Sub(known.last), 0)
			all = append(all, &nodeapi.RoundTrip{
				Node: name, RttUs: known.smoothed.Microseconds(), Age: durationpb.New(age),
			})
		}
	}
	slices.SortFunc(all, func(a, b *nodeapi.RoundTrip) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return all
}

// Report is what is to be told now; nil while there is no news.
func (p *Plan) Report(now time.Time) *nodeapi.RoundTrips {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.told); !p.told.IsZero() && (since < reportEvery || since < refreshEvery && !p.news(now)) {
		return nil
	}
	p.expire(now)
	r := &nodeapi.RoundTrips{Measured: p.measured(now)}
	if len(r.Measured) == 0 {
		return nil
	}
	p.told, p.toldAt = now, p.self.Point()
	if p.moves >= min(settledAfter, windowSamples*len(p.of)) {
		r.Coordinate = p.toldAt.Message()
	}
	clear(p.toldRTTs)
	for _, m := range r.Measured {
		p.toldRTTs[m.GetNode()] = p.of[m.GetNode()].smoothed
	}
	return r
}

// Again has all of it told anew: whoever was told may have forgotten it.
func (p *Plan) Again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = time.Time{}
}

// news tells whether something differs from what was told.
func (p *Plan) news(now time.Time) bool {
	var sum time.Duration
	var fresh int
	for name, known := range p.of {
		if !known.fresh(now) {
			continue
		}
		if told := p.toldRTTs[name]; told == 0 || known.differs(told) {
			return true
		}
		sum += known.smoothed
		fresh++
	}
	way := p.self.Point().Moved(p.toldAt)
	return way > movedLeast && float64(way)*float64(fresh) > movedBy*float64(sum)
}

// expire forgets those whom nobody probes any more and whose traffic has ended.
func (p *Plan) expire(now time.Time) {
	for name, known := range p.of {
		if !known.wanted && !known.busy && now.Sub(known.last) > KeptFor {
			delete(p.of, name)
		}
	}
}

// plausible tells whether a round-trip time can be one.
func plausible(rtt time.Duration) bool { return rtt > 0 && rtt <= coordinate.LongestRTT }
