// Package signals knows how busy nodes are, for each function: from what the nodes' daemons
// say of the requests that pass them, and from what gateways say of those that do not.
//
// It is a core without clock and sockets. What is not told anew loses weight: an estimate
// goes from what the node said last to what the function's other nodes say.
package signals

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// activeEvery is how often gateways report, and daemons while they have requests;
	// idleEvery is how often daemons do after a report of none.
	activeEvery = time.Second
	idleEvery   = 10 * time.Second
	// reportsApart is the shortest time between two reports of one source: what a network
	// crowds together, but no flood.
	reportsApart = activeEvery / 10
	// patience is how many reports may be missing before an estimate loses weight.
	patience = 3
	// halfLife is in what time more it loses half.
	halfLife = 5 * time.Second
	// trustLeast is what weight is none. It is reached some 22 s after the patience is over.
	trustLeast = 0.05
	// idleFor is how long a source that sees no requests of a function is remembered to have
	// seen some.
	idleFor = 5 * time.Minute
)

// Estimate is what is known of a function on a node. Times are of requests that are answered, and
// 0 while none has been.
type Estimate struct {
	// RPS is how many requests end per second, EPS how many of them fail.
	RPS, EPS float64
	// Seen is how many of RPS gateways have told of; the others are the node's own word.
	Seen float64
	// InFlight is how many requests the instances there have, those that wait in them, too.
	InFlight float64
	// SojournTime is how long an instance has one, with its wait for a worker in there: the P
	// of FaaSt (Nguyen et al., section IV).
	SojournTime time.Duration
	// ServiceTime is the same without that wait: as the function says, or else the least
	// sojourn time of some minutes.
	ServiceTime time.Duration
	// QueueWait is how long one waits on the node before an instance has it: for the
	// instance's start and its input, too.
	QueueWait time.Duration
	// Capacity is how many the instances there work on at a time; 0: not known.
	Capacity float64
	// Age is since the last report; of a node that never reported it is 0.
	Age time.Duration
	// Trust is the share of what the node itself said, from 1 to 0; the rest is the mean of
	// the function's other nodes. At 0 without others all of it is 0.
	Trust float64
}

// Row is one Estimate of All.
type Row struct {
	Function, Node string
	Estimate
}

// source is who says something.
type source struct {
	kind kind
	name string
	// process is of a daemon: a node has two while one replaces the other.
	process string
}

type kind int

const (
	// byDaemon: a node's daemon, of the requests that pass it.
	byDaemon kind = iota
	// byRelay: a node's daemon, of those that its node's gateways sent past the daemons.
	byRelay
)

// place is what is said something of.
type place struct{ function, node string }

// speaker is what a source has said.
type speaker struct {
	last     time.Time
	interval time.Duration // to the next report
	of       map[place]*series
}

// Book has what everybody said. Its methods may be called at the same time.
type Book struct {
	refused func(who string, r Reason)

	mu sync.Mutex
	// functions has those that there are, and who has said something of which of their nodes.
	functions map[string]map[string]map[source]*series
	speakers  map[source]*speaker
	gateways  map[string][]source // those among the speakers that say something of a gateway's requests
	daemons   map[string][]string // processes by node, the newest last
}

// New returns an empty book. refused hears what does not count, or not as it was said; it
// must not call back, and may be nil.
func New(refused func(who string, r Reason)) *Book {
	if refused == nil {
		refused = func(string, Reason) {}
	}
	return &Book{refused: refused, functions: map[string]map[string]map[source]*series{}, speakers: map[source]*speaker{}, gateways: map[string][]source{}, daemons: map[string][]string{}}
}

// SetFunctions says which functions there are: nothing is known of others.
func (b *Book) SetFunctions(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := make(map[string]map[string]map[source]*series, len(names))
	for _, name := range names {
		if known[name] = b.functions[name]; known[name] == nil {
			known[name] = map[string]map[source]*series{}
		}
	}
	b.functions = known
	for _, who := range b.speakers {
		maps.DeleteFunc(who.of, func(at place, _ *series) bool { return known[at.function] == nil })
	}
}

// processesMost is how many daemons of one name are listened to: the newest, and the one that
// it replaces, which ends its requests.
const processesMost = 2

// Join says that a node's daemon has registered. Of more than two of one name the newest
// count: others are of nodes that share a name, and would say two things in turns. What those
// said that are gone does not count besides what this one will.
func (b *Book) Join(node, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := slices.DeleteFunc(b.daemons[node], func(p string) bool { return p == process })
	processes := append(others, process)
	b.daemons[node] = processes[max(len(processes)-processesMost, 0):]
	for who := range b.speakers {
		if who.name == node && !slices.Contains(b.daemons[node], who.process) {
			b.forget(who)
		}
	}
}

// Leave says that a node's daemon is gone; with it go its requests.
func (b *Book) Leave(node, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.daemons[node] = slices.DeleteFunc(b.daemons[node], func(p string) bool { return p == process })
	if len(b.daemons[node]) > 0 { // the other one goes on; else the last word grows old
		b.forget(source{byDaemon, node, process})
		b.forget(source{byRelay, node, process})
		return
	}
	delete(b.daemons, node)
}

// forget forgets all that somebody said.
func (b *Book) forget(who source) {
	said := b.speakers[who]
	if said == nil {
		return
	}
	for at := range said.of {
		b.drop(who, at)
	}
	delete(b.speakers, who)
	left := slices.DeleteFunc(b.gateways[who.name], func(g source) bool { return g == who })
	if b.gateways[who.name] = left; len(left) == 0 {
		delete(b.gateways, who.name)
	}
}

func (b *Book) drop(who source, at place) {
	delete(b.speakers[who].of, at)
	nodes := b.functions[at.function]
	if delete(nodes[at.node], who); len(nodes[at.node]) == 0 {
		delete(nodes, at.node)
	}
}

// Daemon takes what a node's daemon says of the requests that passed it to instances of its
// node. Functions that it leaves out have none.
func (b *Book) Daemon(node, process string, reports map[string]Report, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.daemons[node], process) {
		b.refused(node, Superseded)
		return
	}
	who := source{byDaemon, node, process}
	b.take(who, now, func() {
		for function, said := range reports {
			b.add(who, function, node, said, now)
		}
	})
}

// Relayed takes what a node's daemon says of the requests that its node's gateways sent to
// instances, by function and node, as often as it reports itself. away is how long a round trip to
// a node takes: so long each of these requests is in flight for the gateway and not for the
// instance. Functions and nodes that are left out have none.
func (b *Book) Relayed(node, process string, reports map[string]map[string]Report, away func(node string) time.Duration, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := source{byRelay, node, process}
	if len(reports) == 0 && b.speakers[who] == nil {
		return // a node without such gateways
	}
	if !slices.Contains(b.daemons[node], process) {
		b.refused(node, Superseded)
		return
	}
	b.take(who, now, func() {
		for function, nodes := range reports {
			for node, said := range nodes {
				b.add(who, function, node, said.at(away(node)), now)
			}
		}
	})
}

// at is a gateway's report as the node would give it, so far away.
func (r Report) at(away time.Duration) Report {
	metrics := make(map[string]float64, len(r.NamedMetrics))
	for name, v := range r.NamedMetrics {
		metrics[name] = v
	}
	if onTheWay := r.RPSFractional * away.Seconds(); onTheWay > 0 {
		// What is no number stays none, and what is negative is not mended here.
		if v := metrics[InFlightMetric]; v > 0 {
			metrics[InFlightMetric] = max(v-onTheWay, 0)
		}
	}
	if v := metrics[SojournTimeMetric]; v > 0 {
		metrics[SojournTimeMetric] = max(v-away.Seconds(), 0)
	}
	r.NamedMetrics = metrics
	return r
}

// take has a source's report added, unless it comes too soon; then what it left out counts
// as nothing.
func (b *Book) take(who source, now time.Time, add func()) {
	said := b.speakers[who]
	if said == nil {
		said = &speaker{of: map[place]*series{}}
		b.speakers[who] = said
		if who.kind != byDaemon {
			b.gateways[who.name] = append(b.gateways[who.name], who)
		}
	} else if now.Sub(said.last) < reportsApart {
		b.refused(who.name, TooOften)
		return
	}
	said.last = now
	add()
	interval := idleEvery
	for _, s := range said.of {
		if !s.at.Equal(now) {
			s.add(values{}, now)
		}
		if s.busy.Equal(now) {
			interval = activeEvery
		}
	}
	said.interval = interval
	for _, s := range said.of {
		s.interval = interval
	}
}

func (b *Book) add(who source, function, node string, said Report, now time.Time) {
	nodes, known := b.functions[function]
	if !known {
		b.refused(who.name, FunctionUnknown)
		return
	}
	v, reason, ok := parse(said)
	if reason != "" {
		b.refused(who.name, reason)
	}
	if !ok {
		return
	}
	at := place{function, node}
	s := b.speakers[who].of[at]
	if s == nil {
		s = &series{}
		b.speakers[who].of[at] = s
		if nodes[node] == nil {
			nodes[node] = map[source]*series{}
		}
		nodes[node][who] = s
	}
	s.add(v, now)
}

// Of is what is known of a function on a node.
func (b *Book) Of(function, node string, now time.Time) Estimate {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(function, node, now)
}

func (b *Book) of(function, node string, now time.Time) Estimate {
	nodes := b.functions[function]
	own := sum(nodes[node], now)
	if own.trust == 1 {
		return own.estimate()
	}
	var others mean
	for name, of := range nodes {
		if name != node {
			others.add(sum(of, now))
		}
	}
	return own.filledUp(others.values()).estimate()
}

// Demand is how many requests that came by a gateway end per second, by function, on all
// nodes together. Those that pass daemons are not in it: no weight sends them anywhere. known
// is false of a gateway that says nothing.
func (b *Book) Demand(gateway string, now time.Time) (rps map[string]float64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, who := range b.gateways[gateway] {
		said := b.speakers[who]
		if now.Sub(said.last) > patience*said.interval {
			continue
		}
		if !known {
			rps, known = map[string]float64{}, true
		}
		for at, s := range said.of {
			rps[at.function] += s.trust(now) * s.rps
		}
	}
	return rps, known
}

// Overdue is for how long the next report of a node's daemons has been due. known is false of
// a node that has none, or none that has said anything: whatever is on it, nobody can tell.
func (b *Book) Overdue(node string, now time.Time) (d time.Duration, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, process := range b.daemons[node] {
		said := b.speakers[source{byDaemon, node, process}]
		if said == nil {
			continue
		}
		if late := max(now.Sub(said.last)-said.interval, 0); !known || late < d {
			d, known = late, true
		}
	}
	return d, known
}

// All is what is known, by function and node.
func (b *Book) All(now time.Time) []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []Row
	for function, nodes := range b.functions {
		for node := range nodes {
			rows = append(rows, Row{function, node, b.of(function, node, now)})
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// Expire forgets what no longer counts.
func (b *Book) Expire(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for who, said := range b.speakers {
		for at, s := range said.of {
			if s.trust(now) == 0 || s.idle() && now.Sub(s.busy) > idleFor {
				b.drop(who, at)
			}
		}
		if len(said.of) == 0 && now.Sub(said.last) > patience*idleEvery {
			b.forget(who)
		}
	}
}
