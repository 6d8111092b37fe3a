package weights_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/weights"
)

const ms = 1e-3

// table is a matrix of round-trip times, in milliseconds.
type table [][]float64

func (t table) rtt(i, j int) float64 { return t[i][j] * ms }

// testbed is the paper's: an edge node and two cloud nodes. users come to each side.
func testbed(edge, cloud float64) weights.Function {
	return weights.Function{
		Demand: []float64{edge, cloud, cloud},
		Nodes:  []weights.Node{{Service: 4 * ms, Workers: 2}, {Service: 4 * ms, Workers: 7}, {Service: 4 * ms, Workers: 7}},
		RTT:    table{{0, 50, 50}, {50, 0, 0.8}, {50, 0.8, 0}}.rtt,
	}
}

// The paper's own formula, by hand: r = (4, 54, 54) ms.
func TestInverseIsThePapersFormula(t *testing.T) {
	w := weights.Inverse(testbed(100, 100))
	sum := 1.0/4 + 2.0/54
	for j, want := range []float64{1.0 / 4 / sum, 1.0 / 54 / sum, 1.0 / 54 / sum} {
		if math.Abs(w[0][j]-want) > 1e-12 {
			t.Errorf("w_0%d is %v, not %v", j, w[0][j], want)
		}
	}
	busy := testbed(100, 100)
	busy.Nodes[0].Sojourn = 54 * ms
	if w := weights.Inverse(busy); math.Abs(w[0][0]-1.0/3) > 1e-12 {
		t.Errorf("a near node that is as slow as far ones has %v", w[0][0])
	}
}

// The far nodes get nothing while the near one has room, then what it has no room for.
func TestBalancedSpillsWhenTheNearNodeIsFull(t *testing.T) {
	last := 0.0
	for _, c := range []struct{ edge, least, most float64 }{
		{50, 0, 0}, {250, 0, 0}, {350, 0, 0}, {450, 0.02, 0.2}, {1000, 0.5, 0.65}, {5000, 0.8, 0.95},
	} {
		w := weights.Balanced(testbed(c.edge, 100))
		far := w[0][1] + w[0][2]
		if far < c.least || far > c.most {
			t.Errorf("at %v requests/s %v go to the cloud", c.edge, far)
		}
		if far < last {
			t.Errorf("at %v requests/s less goes to the cloud", c.edge)
		}
		last = far
		if w[1][0] != 0 {
			t.Errorf("%v of the cloud's own go to the edge", w[1][0])
		}
	}
}

// What Balanced finds cannot be improved by moving requests of any source from a node to
// another: a check of the optimum that knows nothing of how it was found.
func TestBalancedIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := plausible(t)
		for j := range f.Nodes {
			f.Nodes[j].Busy = 0 // whose requests are no part of the function's latency
		}
		w := weights.Balanced(f)
		least := weights.Latency(f, w)
		from := rapid.IntRange(0, len(f.Demand)-1).Draw(t, "source")
		a, b := rapid.IntRange(0, len(f.Nodes)-1).Draw(t, "from"), rapid.IntRange(0, len(f.Nodes)-1).Draw(t, "to")
		moved := rapid.Float64Range(0, 1).Draw(t, "part") * w[from][a]
		w[from][a] -= moved
		w[from][b] += moved
		// Equal latencies are shared, which may cost each request the resolution.
		if other := weights.Latency(f, w); other < least*(1-1e-3)-100e-6 {
			t.Errorf("%v s, and %v s with %v moved from %d to %d of row %d", least, other, moved, a, b, from)
		}
	})
}

// Whatever is reported, rows are shares.
func TestRowsSumToOneWhateverIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := hostile(t)
		for name, w := range map[string]weights.Matrix{"inverse": weights.Inverse(f), "balanced": weights.Balanced(f)} {
			if len(w) != len(f.Demand) {
				t.Fatalf("%s has %d rows", name, len(w))
			}
			for i := range w {
				check(t, name, w[i], len(f.Nodes))
			}
			for _, replace := range weights.Hold(f, w, w) {
				if replace {
					t.Errorf("%s is replaced by itself", name)
				}
			}
		}
	})
}

func check(t interface{ Errorf(string, ...any) }, name string, row []float64, nodes int) {
	if len(row) != nodes {
		t.Errorf("%s has %d columns", name, len(row))
	}
	if nodes == 0 {
		return
	}
	var sum float64
	for _, x := range row {
		if !(x >= 0 && x <= 1) {
			t.Errorf("%s has a share of %v", name, x)
		}
		sum += x
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("%s has a row that sums to %v", name, sum)
	}
}

// A node farther away gets no more of the source's requests.
func TestWeightsFallWithRTT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := plausible(t)
		i, j := rapid.IntRange(0, len(f.Demand)-1).Draw(t, "source"), rapid.IntRange(0, len(f.Nodes)-1).Draw(t, "node")
		more := rapid.Float64Range(0, 0.2).Draw(t, "more")
		farther, rtt := f, f.RTT
		farther.RTT = func(a, b int) float64 {
			if a == i && b == j {
				return rtt(a, b) + more
			}
			return rtt(a, b)
		}
		for name, policy := range policies {
			if before, after := policy(f)[i][j], policy(farther)[i][j]; after > before+tolerance(name) {
				t.Errorf("%s: %v, and %v when it is farther", name, before, after)
			}
		}
	})
}

// A node that is slower, busier, smaller, silent or failing gets no more requests in all.
func TestLoadsFallWithWhatANodeHasToDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := plausible(t)
		j := rapid.IntRange(0, len(f.Nodes)-1).Draw(t, "node")
		busier := f
		busier.Nodes = slices.Clone(f.Nodes)
		n := &busier.Nodes[j]
		factor := rapid.Float64Range(1, 20).Draw(t, "factor")
		switch rapid.SampledFrom([]string{"slower", "busier", "smaller", "silent", "failing"}).Draw(t, "what") {
		case "slower":
			n.Service *= factor
			n.Sojourn *= factor
		case "busier":
			n.Busy = min(n.Workers, max(n.Busy, n.Busy+n.Workers*(1-1/factor)))
			n.Sojourn *= factor
		case "smaller":
			n.Workers /= factor
			n.Busy /= factor
			n.Sojourn *= factor
		case "silent":
			n.Age += time.Duration(factor * float64(10*time.Second))
		case "failing":
			n.Success = 1 / factor
		}
		for name, policy := range policies {
			before, after := total(f, policy(f), j), total(f, policy(busier), j)
			if after > before+tolerance(name)*max(before, sum(f.Demand)) {
				t.Errorf("%s: %v requests/s, and %v when it has more to do", name, before, after)
			}
		}
	})
}

// On the way from one measurement to another, however different, nothing jumps: where nodes'
// shares of all requests change most, which is looked for by halving, they change by nothing in
// the end. (Several sources' rows may: while each node gets the same, the search for the best ends
// before it is settled who goes where.)
func TestWeightsAreContinuous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := plausible(t)
		to := shaped(t, len(from.Demand), len(from.Nodes))
		for name, policy := range policies {
			at := func(x float64) []float64 {
				f := between(from, to, x)
				return spread(f, policy(f))
			}
			low, high := 0.0, 1.0
			first, last := at(low), at(high)
			for range 32 {
				x := (low + high) / 2
				middle := at(x)
				if moved(first, middle) > moved(middle, last) {
					high, last = x, middle
				} else {
					low, first = x, middle
				}
			}
			// Less than a billionth of the way further. Each of the two is as exact as its policy.
			if d := moved(first, last); d > max(1e-5, 2*tolerance(name)) {
				t.Errorf("%s: at %v of the way %v of all requests go elsewhere at once: %v, then %v", name, low, d, first, last)
			}
		}
	})
}

// between is so much of the way from one measurement to another.
func between(from, to weights.Function, x float64) (f weights.Function) {
	mix := func(a, b float64) float64 { return a + (b-a)*x }
	for i, d := range from.Demand {
		f.Demand = append(f.Demand, mix(d, to.Demand[i]))
	}
	for j, a := range from.Nodes {
		b := to.Nodes[j]
		f.Nodes = append(f.Nodes, weights.Node{Service: mix(a.Service, b.Service), Sojourn: mix(a.Sojourn, b.Sojourn), Workers: mix(a.Workers, b.Workers), Busy: mix(a.Busy, b.Busy)})
	}
	f.RTT = func(i, j int) float64 { return mix(from.RTT(i, j), to.RTT(i, j)) }
	return f
}

// spread is each node's part of all requests.
func spread(f weights.Function, w weights.Matrix) []float64 {
	part := make([]float64, len(f.Nodes))
	for j := range part {
		part[j] = total(f, w, j) / sum(f.Demand)
	}
	return part
}

// moved is which part of the requests goes elsewhere.
func moved(a, b []float64) (part float64) {
	for j := range a {
		part += math.Abs(a[j]-b[j]) / 2
	}
	return part
}

// Nodes of which nothing is heard any more lose their share; if nobody is heard, nothing
// changes.
func TestSilentNodesDecay(t *testing.T) {
	f := testbed(300, 700)
	before := weights.Balanced(f)
	for j := range f.Nodes {
		f.Nodes[j].Age = time.Minute
	}
	for i, row := range weights.Balanced(f) {
		if !slices.Equal(row, before[i]) {
			t.Errorf("row %d was %v and is %v when nobody is heard", i, before[i], row)
		}
	}
	f.Nodes[1].Age, f.Nodes[2].Age = 0, -time.Hour
	last := 2.0
	for age := time.Duration(0); age <= time.Minute; age += 5 * time.Second {
		f.Nodes[0].Age = age
		share := weights.Balanced(f)[0][0]
		if age <= 5*time.Second && share != before[0][0] {
			t.Errorf("after %v it has lost something already", age)
		}
		if share > last {
			t.Errorf("after %v it gets more", age)
		}
		last = share
	}
	if last > 0.01 {
		t.Errorf("after a minute it still gets %v", last)
	}
}

// Reports of steady load, as noisy as random arrivals make them, change no weights.
func TestHoldDoesNotChaseNoise(t *testing.T) {
	for _, edge := range []float64{50, 300, 450, 600, 2000} {
		r := rand.New(rand.NewPCG(1, uint64(edge)))
		held := weights.Balanced(testbed(edge, 500))
		changes := 0
		for range 120 { // ten minutes, each five seconds
			f := testbed(edge, 500)
			for i, d := range f.Demand {
				// What an average over 30 s of Poisson arrivals is off by.
				f.Demand[i] = d + r.NormFloat64()*math.Sqrt(d/60)
			}
			for j := range f.Nodes {
				f.Nodes[j].Service *= 1 + 0.01*r.NormFloat64()
			}
			for _, replace := range weights.Hold(f, held, weights.Balanced(f)) {
				if replace {
					changes++
				}
			}
		}
		if changes > 0 {
			t.Errorf("%d changes at %v requests/s", changes, edge)
		}
	}
}

// What matters does change them: load, a slow node, a way that has become longer.
func TestHoldFollowsWhatMatters(t *testing.T) {
	held := weights.Balanced(testbed(300, 300))
	for name, f := range map[string]weights.Function{
		"twice the load": testbed(600, 300),
		"a slow node": func() weights.Function {
			f := testbed(300, 300)
			f.Nodes[0].Service *= 10
			return f
		}(),
	} {
		if replace := weights.Hold(f, held, weights.Balanced(f)); !replace[0] || replace[1] || replace[2] {
			t.Errorf("%s replaces %v", name, replace)
		}
	}
	fewer := testbed(300, 300)
	fewer.Nodes = fewer.Nodes[:2]
	if replace := weights.Hold(fewer, held, weights.Balanced(fewer)); slices.Contains(replace, false) {
		t.Error("a row for nodes that are gone is held")
	}
}

// Whole numbers: exact sums, nobody far from its share, no order turned round.
func TestIntegersSumExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64(), rapid.SampledFrom(oddities)), 1, 50).Draw(t, "row")
		total := rapid.IntRange(1, 100_000).Draw(t, "total")
		whole := weights.Integers(row, total)
		var sum int
		for _, w := range whole {
			sum += int(w)
		}
		if len(whole) != len(row) || sum != total {
			t.Fatalf("%v sum to %d of %d", whole, sum, total)
		}
		for a := range row {
			for b := range row {
				if row[a] > row[b] && row[a] > 0 && row[a] < 1e300 && whole[a] < whole[b] {
					t.Errorf("%v has %d, %v has %d", row[a], whole[a], row[b], whole[b])
				}
			}
		}
	})
	if got := weights.Integers([]float64{1, 1, 1}, 100); !slices.Equal(got, []uint32{34, 33, 33}) {
		t.Errorf("thirds are %v", got)
	}
	if got := weights.Integers([]float64{0.004, 0.9, 0.096}, 100); !slices.Equal(got, []uint32{0, 90, 10}) {
		t.Errorf("the remainder went elsewhere: %v", got)
	}
}

var policies = map[string]func(weights.Function) weights.Matrix{"inverse": weights.Inverse, "balanced": weights.Balanced}

// tolerance is how exact a policy is, in shares: the one is a formula, the other a search
// that ends when latencies are.
func tolerance(policy string) float64 {
	if policy == "inverse" {
		return 1e-12
	}
	return 0.02
}

func sum(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

// total is what node j gets, in requests per second.
func total(f weights.Function, w weights.Matrix, j int) (load float64) {
	for i := range w {
		load += f.Demand[i] * w[i][j]
	}
	return load
}

// plausible are measurements as they might be: up to overload, near and far.
func plausible(t *rapid.T) weights.Function {
	return shaped(t, rapid.IntRange(1, 6).Draw(t, "sources"), rapid.IntRange(1, 6).Draw(t, "nodes"))
}

// shaped are plausible measurements of so many sources and nodes.
func shaped(t *rapid.T, sources, nodes int) weights.Function {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	var f weights.Function
	var capacity float64
	for range nodes {
		n := weights.Node{Service: ms * math.Exp(4*r.Float64()), Workers: float64(1 + r.IntN(16))}
		n.Sojourn = n.Service * (1 + r.ExpFloat64())
		n.Busy = n.Workers * 0.5 * r.Float64()
		capacity += (n.Workers - n.Busy) / n.Service
		f.Nodes = append(f.Nodes, n)
	}
	load := rapid.Float64Range(0.01, 1.5).Draw(t, "load")
	for range sources {
		f.Demand = append(f.Demand, load*capacity/float64(sources)*2*r.Float64())
	}
	rtt := make([]float64, sources*nodes)
	for i := range rtt {
		rtt[i] = ms * math.Exp(6*r.Float64()-1)
	}
	f.RTT = func(i, j int) float64 { return rtt[i*nodes+j] }
	return f
}

var oddities = []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-300, 1e12}

// hostile are measurements of which any may be anything.
func hostile(t *rapid.T) weights.Function {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom(oddities), rapid.Float64Range(0, 100))
	sources, nodes := rapid.IntRange(0, 5).Draw(t, "sources"), rapid.IntRange(0, 5).Draw(t, "nodes")
	var f weights.Function
	for range sources {
		f.Demand = append(f.Demand, number.Draw(t, "demand"))
	}
	for range nodes {
		f.Nodes = append(f.Nodes, weights.Node{Age: time.Duration(rapid.Int64().Draw(t, "age")), Service: number.Draw(t, "service"),
			Sojourn: number.Draw(t, "sojourn"), Workers: number.Draw(t, "workers"), Busy: number.Draw(t, "busy")})
	}
	rtts := rapid.SliceOfN(number, sources*nodes, sources*nodes).Draw(t, "rtts")
	f.RTT = func(i, j int) float64 { return rtts[i*nodes+j] }
	return f
}

// BenchmarkBalanced is the work for one function on a large platform, most of it in
// overload.
func BenchmarkBalanced(b *testing.B) {
	for _, load := range []float64{0.5, 0.9, 1.2} {
		b.Run(fmt.Sprint(load), func(b *testing.B) {
			const n = 1000
			r := rand.New(rand.NewPCG(1, 1))
			var f weights.Function
			var x, y []float64
			for range n {
				node := weights.Node{Service: 4 * ms, Workers: float64(1 + r.IntN(8))}
				f.Nodes = append(f.Nodes, node)
				f.Demand = append(f.Demand, load*node.Workers/node.Service*2*r.Float64())
				x, y = append(x, r.Float64()), append(y, r.Float64())
			}
			f.RTT = func(i, j int) float64 { return 100 * ms * math.Hypot(x[i]-x[j], y[i]-y[j]) }
			for b.Loop() {
				weights.Balanced(f)
			}
			var u syscall.Rusage
			syscall.Getrusage(syscall.RUSAGE_SELF, &u)
			b.ReportMetric(float64(u.Utime.Nano())/1e9, "cpu-s")
		})
	}
}
