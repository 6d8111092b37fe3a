package weights

import (
	"math"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Policy makes weights of what has been measured, and says when those in use are to give way.
type Policy struct {
	Weigh func(Function) Matrix
	// Hold tells which rows of held are to be replaced by the wanted ones, which are of the
	// same sources and nodes.
	Hold func(f Function, held, wanted Matrix) []bool
	// PerRequest: gateways hear what to expect, and pick by that. Else the shares alone rule.
	PerRequest bool
}

// The policies.
var (
	ByLatency = Policy{Weigh: Balanced, Hold: Hold, PerRequest: true}
	ByInverse = Policy{Weigh: Inverse, Hold: Shifted}
)

const (
	// memory is the time over which demand is averaged: weights must not chase bursts, which
	// the choice per request is there for.
	memory = averageUnknown
	// shifted is which part of its requests has to go elsewhere for a row of Inverse to be
	// replaced. That policy has no idea of what a change is worth.
	shifted = 0.05
	// outdated is by how much what a source was told may be off, as a part of it.
	outdated = 0.25
)

// Shifted tells which rows of held would send enough of their requests elsewhere as wanted.
func Shifted(_ Function, held, wanted Matrix) []bool {
	replace := make([]bool, len(wanted))
	for i, row := range wanted {
		var moved float64
		for j, share := range row {
			moved += math.Abs(share-held[i][j]) / 2
		}
		replace[i] = moved > shifted
	}
	return replace
}

// Measured is what a Loop is told of its function.
type Measured struct {
	// Sources and Nodes are the names of Function's, each once.
	Sources, Nodes []string
	// Function has as Demand what there was since the decision before; that is averaged here.
	// What is not a number was not counted: the average stays.
	Function Function
	// Passed is since then. 0: nothing was counted, and Demand says nothing.
	Passed time.Duration
}

// Expected is what a request from a source may expect of a node, all its endpoints together.
type Expected struct {
	filterapi.Expected
	// Success as in Node. Service is the longer for it.
	Success float64
}

// Change is what of a row is different after a decision.
type Change int

// The changes.
const (
	// Held: nothing is that is worth telling.
	Held Change = iota
	// Expectations: what requests may expect, and not their shares.
	Expectations
	// Replaced: the shares, too.
	Replaced
)

// Loop decides on one function's weights again and again. Those in use stay until others are
// worthwhile. Sources and nodes may come and go; with the nodes, all is decided anew.
type Loop struct {
	policy         Policy
	sources, nodes []string
	demand         []float64 // requests per second, averaged; NaN: not counted yet
	held, wanted   Matrix
	told           [][]Expected
}

// NewLoop begins without any weights.
func NewLoop(p Policy) *Loop { return &Loop{policy: p} }

// Decide returns what is different for each source.
func (l *Loop) Decide(m Measured) []Change {
	l.follow(m)
	f := m.Function
	f.Demand, f.Over = l.demand, memory
	wanted := l.policy.Weigh(f)
	l.wanted = wanted
	changes := make([]Change, len(wanted))
	for i := range wanted {
		if l.held[i] == nil {
			l.held[i], changes[i] = wanted[i], Replaced
		}
	}
	for i, replace := range l.policy.Hold(f, l.held, wanted) {
		if replace {
			l.held[i], changes[i] = wanted[i], Replaced
		}
	}
	for i, now := range l.expect(f) {
		if changes[i] == Held && !l.outdated(i, now) {
			continue
		}
		l.told[i] = now
		changes[i] = max(changes[i], Expectations)
	}
	return changes
}

// Shares is row i as it is in use.
func (l *Loop) Shares(i int) []float64 { return l.held[i] }

// Wanted is row i as it would be best by what was measured last.
func (l *Loop) Wanted(i int) []float64 { return l.wanted[i] }

// Expect is what source i was told to expect of each node.
func (l *Loop) Expect(i int) []Expected { return l.told[i] }

// Demand is what source i sends on average, in requests per second; 0: not known.
func (l *Loop) Demand(i int) float64 {
	if math.IsNaN(l.demand[i]) {
		return 0
	}
	return l.demand[i]
}

// follow makes the rows and columns those of m, and takes its demand.
func (l *Loop) follow(m Measured) {
	before := make(map[string]int, len(l.sources))
	for i, name := range l.sources {
		before[name] = i
	}
	column := l.columns(m.Nodes)
	n := len(m.Sources)
	demand, held, told := make([]float64, n), make(Matrix, n), make([][]Expected, n)
	for i, name := range m.Sources {
		demand[i] = math.NaN()
		if k, known := before[name]; known {
			demand[i] = l.demand[k]
			if column != nil {
				held[i], told[i] = pick(l.held[k], column), pick(l.told[k], column)
			}
		}
		if m.Passed > 0 && !math.IsNaN(m.Function.Demand[i]) {
			demand[i] = averaged(demand[i], believe(m.Function.Demand[i], 0, demandLimit, 0), m.Passed)
		}
	}
	l.sources, l.nodes = slices.Clone(m.Sources), slices.Clone(m.Nodes)
	l.demand, l.held, l.told = demand, held, told
}

// columns says where the nodes were before; nil: they were others.
func (l *Loop) columns(nodes []string) []int {
	if len(nodes) != len(l.nodes) {
		return nil
	}
	at := make(map[string]int, len(l.nodes))
	for j, name := range l.nodes {
		at[name] = j
	}
	column := make([]int, len(nodes))
	for j, name := range nodes {
		k, known := at[name]
		if !known {
			return nil
		}
		column[j] = k
	}
	return column
}

func pick[T any](row []T, column []int) []T {
	picked := make([]T, len(column))
	for j, k := range column {
		picked[j] = row[k]
	}
	return picked
}

// averaged moves a mean towards a value as the time allows; one that is not known is it.
func averaged(mean, value float64, passed time.Duration) float64 {
	if math.IsNaN(mean) {
		return value
	}
	return mean + (value-mean)*(1-math.Exp(-float64(passed)/float64(memory)))
}

// expect is what all sources may expect with the weights in use.
func (l *Loop) expect(f Function) [][]Expected {
	nodes, rtts, demand := f.nodes(), f.rtts(), f.demands()
	load := make([]float64, len(nodes))
	for i, row := range l.held {
		for j, share := range row {
			load[j] += demand[i] * share
		}
	}
	all := make([][]Expected, len(l.held))
	for i, row := range l.held {
		all[i] = make([]Expected, len(nodes))
		for j, n := range nodes {
			// How many it works on does not change by its silence, only how far it is relied on.
			workers := believe(f.Nodes[j].Workers, 1, workersLimit, workersUnknown)
			others := max(0, load[j]-demand[i]*row[j])
			all[i][j] = Expected{Success: n.Success, Expected: filterapi.Expected{
				RTT: duration(rtts[i*len(nodes)+j]), Service: duration(n.Service),
				Workers: workers, Others: believe(f.Nodes[j].Busy, 0, workers, 0) + others*n.Service}}
		}
	}
	return all
}

// outdated tells whether source i has to hear anew of what it may expect. That rebuilds no
// cluster.
func (l *Loop) outdated(i int, now []Expected) bool {
	for j, e := range now {
		told := l.told[i][j]
		if math.Abs((e.RTT-told.RTT).Seconds()) > max(resolution, outdated*told.RTT.Seconds()) ||
			math.Abs(e.Others-told.Others) > max(1, outdated*told.Workers) {
			return true
		}
		// A node that fails has room, whatever comes: nobody must take it for where to go.
		if e.Success < told.Success/2 || e.Success > 2*told.Success {
			return true
		}
		// Of a node that it does not send to it need not know better.
		if l.held[i][j] > 0 && (off(e.Service.Seconds(), told.Service.Seconds()) || off(e.Workers, told.Workers)) {
			return true
		}
	}
	return false
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func off(now, told float64) bool { return math.Abs(now-told) > outdated*told }
