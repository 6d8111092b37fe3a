package budget

import (
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

var seeds = flag.Int("seeds", 20, "how many simulations of half an hour")

// simulation is nodes and two control planes, with streams between them that take as long as they like, and end.
type simulation struct {
	*rand.Rand
	budgets map[string]int
	now     time.Time
	planes  [2]*dealer
	// inCharge is the one that deals, -1: none.
	inCharge  int
	takeovers time.Duration // how often another takes charge
	daemons   []*daemon
	names     int
	exceeded  int
	full      int // 1: all of the budget is with the daemons
}

// daemon obeys as the protocol says.
type daemon struct {
	daemonID
	rate     float64 // of its clock
	streams  [2]*stream
	follows  int
	lastID   int64
	reported time.Time
	hangs    bool                // it has neither streams nor work
	sent     map[int64]time.Time // when it sent its reports, by its own clock
	held     map[string]int
	wants    map[string]int
	limits   map[string]int
	obeys    int64
	until    time.Time // by its own clock
}

// stream has what is under way between a daemon and a control plane, in its order.
type stream struct {
	up   []late[*nodeapi.Unused]
	down []late[*nodeapi.Allowances]
}

// late is a message with the time of its arrival.
type late[M any] struct {
	at      time.Time
	message M
}

func (s *simulation) clock(d *daemon) time.Time {
	return time.Unix(0, 0).Add(time.Duration(float64(s.now.Sub(time.Unix(0, 0))) * d.rate))
}

// expire has a daemon close what it may not hold any more.
func (s *simulation) expire(d *daemon) {
	if s.clock(d).Before(d.until) {
		return
	}
	d.obeys = 0
	clear(d.limits)
	clear(d.held)
}

func (s *simulation) report(d *daemon, to int) {
	if d.streams[to] == nil {
		return
	}
	s.expire(d)
	d.lastID++
	d.sent[d.lastID] = s.clock(d)
	m := &nodeapi.Unused{Id: d.lastID, Allowances: d.obeys}
	for _, name := range slices.Sorted(maps.Keys(s.budgets)) {
		m.Destinations = append(m.Destinations, &nodeapi.UnusedConnections{
			Destination: name, Held: int32(d.held[name]), Wanted: int32(d.wants[name])})
	}
	d.streams[to].up = append(d.streams[to].up, late[*nodeapi.Unused]{s.arrival(), m})
	d.reported = s.now
}

// obey takes what a control plane allows.
func (s *simulation) obey(d *daemon, m *nodeapi.Allowances) {
	s.expire(d)
	sent, known := d.sent[m.GetAnswers()]
	until := sent.Add(m.GetExpiresIn().AsDuration())
	if !known || !s.clock(d).Before(until) {
		return
	}
	limits := map[string]int{}
	for _, a := range m.GetDestinations() {
		limits[a.GetDestination()] = int(a.GetUnused())
		if m.GetKeep() {
			limits[a.GetDestination()] = min(int(a.GetUnused()), d.held[a.GetDestination()])
		}
	}
	d.limits, d.obeys, d.until = limits, m.GetId(), until
}

// fill has a daemon open all that it may and wants, and close what is too much one by one.
func (s *simulation) fill(d *daemon) {
	s.expire(d)
	for name, held := range d.held {
		if held > d.limits[name] && s.Intn(10) == 0 {
			d.held[name]--
		}
	}
	for name, limit := range d.limits {
		d.held[name] = max(d.held[name], min(limit, d.wants[name]))
	}
}

// arrival is when a message arrives that is sent now. Some take longer than an allowance holds.
func (s *simulation) arrival() time.Time {
	most := 40 * time.Millisecond
	switch s.Intn(100) {
	case 0:
		most = 2 * expiry
	case 1, 2, 3:
		most = 5 * time.Second
	}
	return s.now.Add(time.Duration(s.Int63n(int64(most))))
}

// deliver hands on what has arrived.
func (s *simulation) deliver(d *daemon, with int) {
	st := d.streams[with]
	for st != nil && len(st.up) > 0 && !s.now.Before(st.up[0].at) {
		s.planes[with].Report(d.daemonID, st.up[0].message, s.now)
		st.up = st.up[1:]
	}
	for st != nil && len(st.down) > 0 && !s.now.Before(st.down[0].at) {
		if d.follows == with {
			s.obey(d, st.down[0].message)
		}
		st.down = st.down[1:]
	}
}

func (s *simulation) deal() {
	if s.inCharge < 0 {
		return
	}
	for _, told := range s.planes[s.inCharge].Deal(s.now) {
		for _, d := range s.daemons {
			if d.daemonID == told.To && d.streams[s.inCharge] != nil {
				st := d.streams[s.inCharge]
				st.down = append(st.down, late[*nodeapi.Allowances]{s.arrival(), told.Allowances})
			}
		}
	}
}

func (s *simulation) disconnect(d *daemon, from int) {
	if d.streams[from] != nil {
		s.planes[from].Left(d.daemonID)
	}
	d.streams[from] = nil
}

// restart has another control plane process in the place of one, which knows nothing.
func (s *simulation) restart(plane int) {
	s.planes[plane] = newDealer(s.budgets, s.now)
	for _, d := range s.daemons {
		d.streams[plane] = nil
	}
}

// die has another process in the place of a daemon, some times of the same name.
func (s *simulation) die(d *daemon) {
	for i := range d.streams {
		s.disconnect(d, i)
	}
	if s.Intn(2) == 0 { // else it hangs, and holds what it has
		s.daemons = slices.DeleteFunc(s.daemons, func(other *daemon) bool { return other == d })
	}
	d.hangs = true
	next := s.start(d.rate)
	next.wants = d.wants
	if s.Intn(2) == 0 {
		next.daemonID = d.daemonID
	}
}

func (s *simulation) start(rate float64) *daemon {
	s.names++
	d := &daemon{daemonID: daemonID{"node", fmt.Sprint(s.names)}, rate: rate, sent: map[int64]time.Time{},
		held: map[string]int{}, wants: map[string]int{}, limits: map[string]int{}}
	s.daemons = append(slices.DeleteFunc(s.daemons, func(other *daemon) bool { return other.hangs && len(other.held) == 0 }), d)
	return d
}

// check counts what daemons may hold together, by what they obey.
func (s *simulation) check() {
	for name, budget := range s.budgets {
		sum := 0
		for _, d := range s.daemons {
			s.expire(d)
			sum += max(d.held[name], d.limits[name])
		}
		if s.full = 0; sum == budget {
			s.full = 1
		}
		if sum > budget {
			s.exceeded++
		}
	}
}

// step is what happens in 50 ms; once tells whether something happens now that happens so often.
func (s *simulation) step() {
	const every = 50 * time.Millisecond
	s.now = s.now.Add(every)
	once := func(in time.Duration) bool { return s.Int63n(int64(in)) < int64(every) }
	if once(s.takeovers) {
		if s.inCharge = s.Intn(3) - 1; s.inCharge >= 0 {
			s.planes[s.inCharge] = newDealer(s.budgets, s.now)
		}
	}
	if plane := s.Intn(2); once(5 * time.Minute) {
		if s.restart(plane); s.inCharge == plane {
			s.inCharge = -1
		}
	}
	for _, d := range slices.Clone(s.daemons) {
		if d.hangs {
			continue
		}
		for with := range d.streams {
			switch {
			case d.streams[with] == nil && once(10*time.Second):
				d.streams[with] = &stream{}
				s.report(d, with)
			case once(time.Minute):
				s.disconnect(d, with)
			}
			s.deliver(d, with)
		}
		switch {
		case s.inCharge >= 0 && d.follows != s.inCharge && once(3*time.Second), once(5 * time.Minute):
			d.follows = max(s.inCharge, 0)
			s.report(d, d.follows)
		case once(4 * time.Second):
			d.wants["orders"] = s.Intn(10)
		case once(2 * time.Second):
			d.held["orders"] = max(d.held["orders"]-s.Intn(4), 0) // they are used
		case once(3 * time.Minute):
			s.die(d)
			continue
		}
		if s.now.Sub(d.reported) > 2*time.Second {
			s.report(d, s.Intn(2))
			s.report(d, d.follows)
		}
		s.fill(d)
	}
	if once(500 * time.Millisecond) {
		s.deal()
	}
	s.check()
}

// Whatever vanishes, is lost or is late, the nodes never hold more than the budget together.
func TestTheBudgetIsNeverExceeded(t *testing.T) {
	var full int // how often all of it was dealt
	for seed := range int64(*seeds) {
		s := &simulation{Rand: rand.New(rand.NewSource(seed)), now: time.Unix(1_000, 0)}
		s.budgets = map[string]int{"orders": 1 + s.Intn(12)}
		s.takeovers = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}[s.Intn(3)]
		for i := range s.planes {
			s.restart(i)
		}
		for range 1 + s.Intn(5) {
			s.start(0.99 + 0.01*float64(s.Intn(3)))
		}
		for range 20 * 60 * 30 {
			s.step()
			full += s.full
		}
		if s.exceeded > 0 {
			t.Fatalf("seed %d: budget_exceeded %d", seed, s.exceeded)
		}
	}
	t.Logf("all of a budget was dealt in %d of %d steps", full, *seeds*20*60*30)
	if full == 0 {
		t.Error("the simulation never dealt all of a budget")
	}
}

// What a daemon said before another control plane took charge may be what others hold since.
func TestALateReportIsNoAllowance(t *testing.T) {
	s := &simulation{Rand: rand.New(rand.NewSource(1)), budgets: map[string]int{"orders": 5}, now: time.Unix(1_000, 0)}
	s.restart(0)
	s.restart(1)
	s.now = s.now.Add(expiry + margin)
	a, b := s.start(1), s.start(1)
	for _, d := range s.daemons {
		d.streams = [2]*stream{{}, {}}
	}
	arrive := func(d *daemon, with int) {
		st := d.streams[with]
		for i := range st.up {
			st.up[i].at = s.now
		}
		s.deliver(d, with)
		if s.inCharge = with; s.inCharge == d.follows {
			s.deal()
		}
		for _, other := range s.daemons {
			for i := range other.streams[with].down {
				other.streams[with].down[i].at = s.now
			}
			s.deliver(other, with)
			s.fill(other)
		}
		s.check()
	}
	a.wants["orders"] = 5
	s.report(a, 0)
	arrive(a, 0)
	s.report(a, 1) // it holds 5, and this is late
	a.wants["orders"], b.wants["orders"], a.held["orders"] = 0, 5, 0
	s.report(a, 0)
	arrive(a, 0)
	s.report(a, 0) // it obeys
	arrive(a, 0)
	s.report(b, 0)
	arrive(b, 0)
	if b.held["orders"] != 5 || a.limits["orders"] != 0 {
		t.Fatalf("b holds %d, a may hold %d", b.held["orders"], a.limits["orders"])
	}
	s.planes[1] = newDealer(s.budgets, s.now)
	a.follows, b.follows, a.wants["orders"] = 1, 1, 5
	arrive(a, 1)
	if s.exceeded > 0 {
		t.Errorf("budget_exceeded %d: a holds %d, b %d", s.exceeded, a.held["orders"], b.held["orders"])
	}
}
