// Package budget deals out to nodes how many unused connections they may hold. All nodes together never hold more of a
// destination than the operator allows, also when nodes vanish, messages are lost or late, or another control plane takes
// over.
//
// An allowance is a lease. A daemon counts its expiry from when it sent the report that the allowance answers, and the
// dealer from when it sent the allowance, which is later. So messages may take as long as they like. What a daemon
// may hold counts here until it has said that it obeys less, or until all that it was allowed has expired.
package budget

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// expiry is how long an allowance holds. Daemons report at least three times as often.
	expiry = 30 * time.Second
	// margin is how much longer an allowance counts here. Clocks may differ by 1 % in their rate, and a daemon needs
	// time to close what it holds.
	margin = 6 * time.Second
)

// daemonID names one process of a node.
type daemonID struct{ Node, Process string }

// dealer deals all destinations out. It does no I/O, and has no clock: each call has the time.
type dealer struct {
	budgets map[string]int
	// settled is when all allowances of the control plane before have expired.
	settled time.Time
	lastID  int64
	daemons map[daemonID]*holder
	past    []*holder // of processes that others have replaced
}

// newDealer returns a dealer of the budgets, by destination, whose control plane takes charge now. For one expiry it deals
// nothing that nodes do not hold: it does not know what the control plane before has allowed.
func newDealer(budgets map[string]int, now time.Time) *dealer {
	// Another control plane's ids differ: it began at another time.
	return &dealer{budgets: budgets, settled: now.Add(expiry + margin), lastID: now.UnixNano(), daemons: map[daemonID]*holder{}}
}

// holder is what is known of one daemon, in numbers of connections by destination.
type holder struct {
	connected bool
	answers   int64 // the id of its last report
	due       bool  // that has no answer yet
	wants     map[string]int
	shares    map[string]int // what it may hold, by the newest allowances
	// held is what it said that it holds; until heldUntil, when all that allowed it has expired.
	held      map[string]int
	heldUntil time.Time
	// sent are the allowances that it may obey, the newest last.
	sent  []allowance
	first int64 // the id of the first one that it was ever sent; 0: none yet
	obeys bool  // it has obeyed one of ours
}

type allowance struct {
	id     int64
	until  time.Time
	shares map[string]int
}

// charge is the most that the daemon can hold.
func (h *holder) charge(destination string, now time.Time) int {
	most := 0
	if now.Before(h.heldUntil) {
		most = h.held[destination]
	}
	for _, a := range h.sent {
		if now.Before(a.until) {
			most = max(most, a.shares[destination])
		}
	}
	return most
}

// expires is when the daemon can hold nothing any more, unless it is allowed to again.
func (h *holder) expires() time.Time {
	last := h.heldUntil
	for _, a := range h.sent {
		if a.until.After(last) {
			last = a.until
		}
	}
	return last
}

// Report takes a daemon's word.
func (d *dealer) Report(from daemonID, m *nodeapi.Unused, now time.Time) {
	h := d.daemons[from]
	obeyed := m.GetAllowances()
	if h != nil && (m.GetId() <= h.answers || obeyed < h.first && (h.obeys || !h.connected)) {
		// Perhaps another process in its place. The one before may hold what it was allowed until that expires.
		if h.connected = false; len(h.sent) > 0 {
			d.past = append(d.past, h)
		}
		h = nil
	}
	if h == nil {
		h = &holder{shares: map[string]int{}}
		d.daemons[from] = h
	}
	ours := h.first > 0 && obeyed >= h.first && obeyed <= d.lastID
	held, wants := map[string]int{}, map[string]int{}
	for _, u := range m.GetDestinations() {
		budget, known := d.budgets[u.GetDestination()]
		if !known {
			continue
		}
		// Once all allowances are ours, a daemon cannot hold more than it was allowed, whatever it says.
		most := budget
		if d.sure(now) {
			most = h.charge(u.GetDestination(), now)
		}
		held[u.GetDestination()] = min(max(int(u.GetHeld()), 0), most)
		wants[u.GetDestination()] = min(max(int(u.GetWanted()), 0), budget)
	}
	h.heldUntil = h.expires()
	if !d.sure(now) {
		h.heldUntil = d.settled
	}
	if ours {
		h.obeys = true
		h.sent = slices.DeleteFunc(h.sent, func(a allowance) bool { return a.id < obeyed })
	}
	h.connected, h.due, h.answers, h.held, h.wants = true, true, m.GetId(), held, wants
}

// sure says that nothing counts but what this dealer has allowed.
func (d *dealer) sure(now time.Time) bool { return !now.Before(d.settled) }

// Left notes that a daemon's stream has ended. What it was allowed counts until that expires.
func (d *dealer) Left(from daemonID) {
	if h := d.daemons[from]; h != nil {
		h.connected, h.due, h.wants, h.shares = false, false, nil, map[string]int{}
	}
}

// word is what a daemon is to be told.
type word struct {
	To         daemonID
	Allowances *nodeapi.Allowances
}

// Deal returns what daemons are to be told now: those that have reported since, and those whose shares have changed.
func (d *dealer) Deal(now time.Time) []word {
	d.forget(now)
	names := slices.SortedFunc(maps.Keys(d.daemons), func(a, b daemonID) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Process, b.Process))
	})
	before := map[daemonID]map[string]int{}
	for name, h := range d.daemons {
		before[name] = maps.Clone(h.shares)
	}
	for _, destination := range slices.Sorted(maps.Keys(d.budgets)) {
		d.share(destination, names, now)
	}
	var told []word
	for _, name := range names {
		h := d.daemons[name]
		if h.connected && (h.due || !maps.Equal(before[name], h.shares)) {
			told = append(told, word{To: name, Allowances: d.allow(h, now)})
		}
	}
	return told
}

// forget drops what has expired.
func (d *dealer) forget(now time.Time) {
	for _, h := range d.daemons {
		h.sent = slices.DeleteFunc(h.sent, func(a allowance) bool { return !now.Before(a.until) })
	}
	gone := func(h *holder) bool { return !h.connected && !now.Before(h.expires()) }
	maps.DeleteFunc(d.daemons, func(_ daemonID, h *holder) bool { return gone(h) })
	d.past = slices.DeleteFunc(d.past, gone)
}

// share sets the daemons' shares of one destination.
func (d *dealer) share(destination string, names []daemonID, now time.Time) {
	var sharers []*holder
	var wants, shares, charges []int
	free := d.budgets[destination]
	for _, h := range d.past {
		free -= h.charge(destination, now)
	}
	for _, name := range names {
		h := d.daemons[name]
		charge := h.charge(destination, now)
		free -= charge
		if h.connected {
			sharers, wants = append(sharers, h), append(wants, h.wants[destination])
			shares, charges = append(shares, h.shares[destination]), append(charges, charge)
		}
	}
	if !d.sure(now) {
		for _, h := range sharers {
			h.set(destination, h.held[destination])
		}
		return
	}
	targets := fair(d.budgets[destination], wants, shares)
	// Less is said at once. More is, as far as nobody else can hold it: what the daemon can hold anyway costs nothing.
	// Those that have least come first.
	needs, least := make([]int, len(sharers)), make([]int, len(sharers))
	for i := range sharers {
		needs[i], least[i] = max(targets[i]-charges[i], 0), -charges[i]
	}
	more := fair(max(free, 0), needs, least)
	for i, h := range sharers {
		h.set(destination, min(targets[i], charges[i]+more[i]))
	}
}

func (h *holder) set(destination string, share int) {
	if h.shares[destination] = share; share == 0 {
		delete(h.shares, destination)
	}
}

// allow makes the daemon's allowances of its shares.
func (d *dealer) allow(h *holder, now time.Time) *nodeapi.Allowances {
	d.lastID++
	h.due = false
	if h.first == 0 {
		h.first = d.lastID
	}
	a := allowance{id: d.lastID, until: now.Add(expiry + margin), shares: maps.Clone(h.shares)}
	if n := len(h.sent); n > 0 && maps.Equal(h.sent[n-1].shares, a.shares) {
		h.sent[n-1] = a
	} else {
		h.sent = append(h.sent, a)
	}
	m := &nodeapi.Allowances{Id: d.lastID, Answers: h.answers, ExpiresIn: durationpb.New(expiry), Keep: !d.sure(now)}
	for _, destination := range slices.Sorted(maps.Keys(h.shares)) {
		m.Destinations = append(m.Destinations, &nodeapi.Allowance{
			Destination: destination, Unused: int32(h.shares[destination])})
	}
	return m
}
