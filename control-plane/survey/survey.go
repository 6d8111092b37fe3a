// Package survey has the nodes measure, and takes what they, and the gateways, say: how far
// nodes are from each other (topology) and how busy (signals). It joins these cores with
// streams, time and metrics.
package survey

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// neighboursEvery is how often it is looked whom nodes are to probe.
	neighboursEvery = 30 * time.Second
	// trafficFor is how long a function counts among those that a node sends requests to
	// after it last did.
	trafficFor = 5 * time.Minute
)

// Nodes are those that can be told something.
type Nodes interface {
	// Connected returns the registrations of the nodes that are connected.
	Connected() map[string]*nodeapi.Register
	// Send sends one message to one node.
	Send(node string, m *nodeapi.ControlMessage) error
}

// Survey has what was measured. Its methods may be called at the same time.
type Survey struct {
	nodes    Nodes
	topology *topology.Map
	signals  *signals.Book
	refused  *prometheus.CounterVec
	log      *slog.Logger
	changed  chan struct{} // holds a token: nodes came or went

	doubting sync.Mutex
	doubts   map[string]doubt // by who said it, the last that does not count

	mu     sync.Mutex
	daemon map[string]int                 // by node: how many are connected
	told   map[string]*nodeapi.Neighbours // by node
	sites  sites
	busy   map[string]map[string]time.Time // when a node last had requests of a function
	hosts  map[string][]string             // by function: the nodes that have its instances
	at     map[place]string                // the node of an address
}

// doubt is what did not count, and when.
type doubt struct {
	reason string
	at     time.Time
}

type place struct {
	function string
	address  netip.AddrPort
}

// New registers the metrics, which docs/reference/metrics.md describes.
func New(nodes Nodes, r prometheus.Registerer, log *slog.Logger) *Survey {
	s := &Survey{nodes: nodes, log: log, changed: make(chan struct{}, 1), daemon: map[string]int{}, told: map[string]*nodeapi.Neighbours{}, sites: sites{told: map[string]*nodeapi.Site{}},
		busy: map[string]map[string]time.Time{}, hosts: map[string][]string{}, at: map[place]string{}, doubts: map[string]doubt{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_measurements_refused_total", Help: "What nodes and gateways measured and does not count, by the reason."}, []string{"node", "reason"})}
	s.topology = topology.New(func(node string, r topology.Reason) { s.refuse(node, string(r), r.Usual()) })
	s.signals = signals.New(func(who string, r signals.Reason) { s.refuse(who, string(r), r.Usual()) })
	r.MustRegister(s.refused, collector{s.signals})
	return s
}

func (s *Survey) refuse(who, reason string, usual bool) {
	s.refused.WithLabelValues(who, reason).Inc()
	s.log.Debug("a measurement does not count", "node", who, "reason", reason)
	if usual {
		return
	}
	now := time.Now()
	s.doubting.Lock()
	defer s.doubting.Unlock()
	maps.DeleteFunc(s.doubts, func(_ string, d doubt) bool { return now.Sub(d.at) > doubtedFor })
	s.doubts[who] = doubt{reason, now}
}

// doubtedFor is how long it is told of something that does not count.
const doubtedFor = time.Minute

// Problems is who said something lately that does not count.
func (s *Survey) Problems(now time.Time) []routing.Problem {
	s.doubting.Lock()
	defer s.doubting.Unlock()
	var all []routing.Problem
	for _, who := range slices.Sorted(maps.Keys(s.doubts)) {
		if d := s.doubts[who]; now.Sub(d.at) <= doubtedFor {
			all = append(all, routing.Problem{
				Gateways: []string{who}, Message: "what its node measures does not count: " + d.reason,
			})
		}
	}
	return all
}

// RTT is how far a node is from another.
func (s *Survey) RTT(from, to string, now time.Time) topology.Estimate {
	return s.topology.RTT(from, to, now)
}

// Of is how busy a node is with a function.
func (s *Survey) Of(function, node string, now time.Time) signals.Estimate {
	return s.signals.Of(function, node, now)
}

// Demand is how many requests come by a gateway, per second, by function; known is false of
// a gateway that says nothing.
func (s *Survey) Demand(gateway string, now time.Time) (rps map[string]float64, known bool) {
	return s.signals.Demand(gateway, now)
}

// Overdue is for how long a node's next report has been due; known is false of a node that
// has said nothing, or is not connected.
func (s *Survey) Overdue(node string, now time.Time) (d time.Duration, known bool) {
	return s.signals.Overdue(node, now)
}

// What the nodes say (nodes.Observer).

// Came says that a daemon of the node is connected.
func (s *Survey) Came(node, process string) {
	s.signals.Join(node, process)
	s.topology.Join(node)
	s.mu.Lock()
	s.daemon[node]++
	delete(s.told, node) // it knows nothing
	delete(s.sites.told, node)
	s.mu.Unlock()
	s.look()
}

// Went says that it is no more.
func (s *Survey) Went(node, process string) {
	s.signals.Leave(node, process)
	s.mu.Lock()
	s.daemon[node]--
	last := s.daemon[node] == 0
	if last {
		delete(s.daemon, node)
		delete(s.told, node)
		delete(s.sites.told, node)
		delete(s.busy, node)
	}
	s.mu.Unlock()
	if last {
		s.topology.Leave(node)
		s.look()
	}
}

// RoundTrips takes what the node measured.
func (s *Survey) RoundTrips(node string, m *nodeapi.RoundTrips) {
	s.topology.Report(node, m, time.Now())
}

// Signals takes what a daemon of the node counted, and what its gateways told it.
func (s *Survey) Signals(node, process string, m *nodeapi.Signals) {
	reports := make(map[string]signals.Report, len(m.GetFunctions()))
	for _, f := range m.GetFunctions() {
		reports[f.GetFunction()] = signals.Report{RPSFractional: f.GetRpsFractional(), EPS: f.GetEps(),
			ApplicationUtilization: f.GetApplicationUtilization(), NamedMetrics: f.GetNamedMetrics()}
	}
	now := time.Now()
	s.signals.Daemon(node, process, reports, now)
	routed := make(map[string][]load, len(m.GetRouted()))
	for _, f := range m.GetRouted() {
		for _, e := range f.GetEndpoints() {
			at, _ := netip.ParseAddrPort(e.GetAddress()) // what is none is no instance's
			routed[f.GetFunction()] = append(routed[f.GetFunction()], load{at, signals.Report{
				RPSFractional: e.GetRpsFractional(), EPS: e.GetEps(), NamedMetrics: e.GetNamedMetrics()}})
		}
	}
	s.signals.Relayed(node, process, s.byNode(node, routed), s.away(node, now), now)
}

// load is what a gateway says of one endpoint.
type load struct {
	address netip.AddrPort
	signals.Report
}

// away is how long a gateway's requests are on their way.
func (s *Survey) away(gateway string, now time.Time) func(node string) time.Duration {
	return func(node string) time.Duration { return s.topology.RTT(gateway, node, now).RTT }
}

// byNode is what a gateway says of functions' endpoints by the nodes of these. Those that are
// no instance's count nowhere.
func (s *Survey) byNode(gateway string, routed map[string][]load) map[string]map[string]signals.Report {
	for function := range routed {
		s.Sends(gateway, function)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]map[string]signals.Report, len(routed))
	for function, loads := range routed {
		nodes := map[string]signals.Report{}
		for _, l := range loads {
			if node, known := s.at[place{function, l.address}]; known {
				nodes[node] = together(nodes[node], l.Report)
			}
		}
		if len(nodes) > 0 {
			all[function] = nodes
		}
	}
	return all
}

// together is of two endpoints of a node, which may be one twice. Of how long requests stay it
// is the mean.
func together(a, b signals.Report) signals.Report {
	sum := signals.Report{RPSFractional: a.RPSFractional + b.RPSFractional, EPS: a.EPS + b.EPS,
		NamedMetrics: map[string]float64{signals.InFlightMetric: a.NamedMetrics[signals.InFlightMetric] + b.NamedMetrics[signals.InFlightMetric]}}
	x, y := a.NamedMetrics[signals.SojournTimeMetric], b.NamedMetrics[signals.SojournTimeMetric]
	switch {
	case x == 0:
		sum.NamedMetrics[signals.SojournTimeMetric] = y
	case y == 0 || sum.RPSFractional == 0:
		sum.NamedMetrics[signals.SojournTimeMetric] = x
	default:
		sum.NamedMetrics[signals.SojournTimeMetric] = (x*a.RPSFractional + y*b.RPSFractional) / sum.RPSFractional
	}
	return sum
}

// Sends says that a node has requests of a function: it is to know the way to its instances.
func (s *Survey) Sends(node, function string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.hosts[function]; !known {
		return
	}
	if s.busy[node] == nil {
		s.busy[node] = map[string]time.Time{}
	}
	before := s.busy[node][function]
	now := time.Now()
	s.busy[node][function] = now
	if now.Sub(before) > trafficFor {
		s.look()
	}
}

// What the platform says.

// SetState says what functions there are, and where.
func (s *Survey) SetState(st platform.State) {
	names := make([]string, 0, len(st.Functions))
	hosts, at := make(map[string][]string, len(st.Functions)), make(map[place]string, len(st.Instances))
	for _, f := range st.Functions {
		names = append(names, f.Name)
		hosts[f.Name] = nil
	}
	for _, in := range st.Instances {
		hosts[in.Function] = append(hosts[in.Function], in.Node)
		if in.Address.IsValid() {
			at[place{in.Function, in.Address}] = in.Node
		}
	}
	for _, e := range st.Endpoints {
		if e.Node == "" || e.Relay { // the other autoscaler's own, which is no instance
			continue
		}
		hosts[e.Function] = append(hosts[e.Function], e.Node)
		at[place{e.Function, e.Address}] = e.Node
	}
	for _, nodes := range hosts {
		slices.Sort(nodes)
	}
	s.signals.SetFunctions(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := !maps.EqualFunc(s.hosts, hosts, slices.Equal)
	s.hosts, s.at = hosts, at
	if moved {
		s.look()
	}
}

// look has Run look at whom nodes are to probe.
func (s *Survey) look() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// settle is how long Run waits after a change: of a start with many nodes each is told a few
// times, and not once for each other.
const settle = time.Second

// Run tells nodes whom to probe until ctx ends, and forgets what is old.
func (s *Survey) Run(ctx context.Context) {
	tick := time.NewTicker(neighboursEvery)
	defer tick.Stop()
	measured := false // until then all nodes would be alone, and forget who is near
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-tick.C:
			measured = true
		}
		now := time.Now()
		s.topology.Expire(now)
		s.signals.Expire(now)
		connected := s.nodes.Connected()
		if measured {
			s.tellSites(connected, now)
		}
		s.tell(connected, now)
	}
}

// tell tells nodes whom to probe, if that is not what they were told last.
func (s *Survey) tell(connected map[string]*nodeapi.Register, now time.Time) {
	maps.DeleteFunc(connected, func(_ string, r *nodeapi.Register) bool { return !r.GetProbes() })
	for node := range connected {
		m := &nodeapi.Neighbours{}
		for _, name := range s.topology.Neighbours(node, append(s.leaders(node, now), s.traffic(node, now)...), now) {
			if peer := connected[name]; peer != nil {
				m.Neighbours = append(m.Neighbours, &nodeapi.Neighbour{Node: name, PeerAddress: peer.GetPeerAddress()})
			}
		}
		s.mu.Lock()
		same := proto.Equal(s.told[node], m) && s.told[node] != nil
		s.mu.Unlock()
		if same || s.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Neighbours{Neighbours: m}}) != nil {
			continue // one that is not connected any more is told when it is back
		}
		s.mu.Lock()
		s.told[node] = m
		s.mu.Unlock()
	}
}

// traffic are the nodes that have instances of the functions that a node has requests of, the
// latest first.
func (s *Survey) traffic(node string, now time.Time) (to []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.busy[node]
	maps.DeleteFunc(of, func(_ string, last time.Time) bool { return now.Sub(last) > trafficFor })
	latest := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return of[b].Compare(of[a]) })
	for _, function := range latest {
		to = append(to, s.hosts[function]...)
	}
	return to
}
