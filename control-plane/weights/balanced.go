package weights

import "math"

const (
	// resolution is by how much latencies have to differ for the nearer node to get all, in
	// seconds: less is noise of the measurement. Nodes that differ by less share, and so
	// weights are a continuous function of what was measured.
	resolution = 100e-6
	// sweeps bounds the work. Hundreds of sources that share overloaded nodes take the most.
	sweeps = 100
	// enough is how close to the least possible latency is close enough, as a part of it. Where round trips are many times
	// the resolution, shares that are 4 % from the best ones cost one part in 10,000 more.
	enough = 1e-6
	// halvings of a step make it as exact as the sweep needs.
	halvings = 12
)

// Balanced returns the weights for which the expected latency of all requests is least, if
// load and speed stay as they are:
//
//	minimize  sum_ij lambda_i w_ij D_ij + sum_j x_j (s_j + Wq_j(x_j)),   x_j = sum_i lambda_i w_ij
//
// where Wq is the wait for one of the node's workers. At the optimum no source can gain by
// sending elsewhere: round trip and price, which is what a further request costs itself and
// all others, are the same for all nodes that it uses, and no less for those that it does not
// (the system optimum of a traffic assignment; Wardrop 1952, Beckmann 1956). So a far node
// gets nothing while near ones have room, and then more and more.
func Balanced(f Function) Matrix {
	p := newProblem(f)
	if len(p.queues) == 0 {
		return p.shares
	}
	for range sweeps {
		var gap, latency float64
		for i := range p.shares {
			g, l := p.improve(i)
			gap += g * p.demand[i]
			latency += l * p.demand[i]
		}
		if gap <= enough*latency {
			break
		}
	}
	for _, row := range p.shares {
		var sum float64
		for _, x := range row {
			sum += x
		}
		for j := range row {
			row[j] /= sum // steps round
		}
	}
	return p.shares
}

// problem is a convex one in the shares. It is solved a row at a time, the others as they
// are, until no row improves.
type problem struct {
	demand []float64
	rtts   []float64
	queues []queue
	// equal is how many of the largest nodes each counts for when latencies are equal.
	equal  []float64
	shares Matrix
	loads  []float64 // of each node, in requests per second
	prices []float64 // of each node, at its load
	slopes []float64
	used   [][]int // of each row, the nodes that it uses or has thought of using

	gradient, curvature, next []float64 // of the row in hand, as used
}

func newProblem(f Function) *problem {
	nodes := f.nodes()
	n := len(nodes)
	p := &problem{demand: f.demands(), rtts: f.rtts(), queues: make([]queue, n), equal: make([]float64, n),
		shares: make(Matrix, len(f.Demand)), used: make([][]int, len(f.Demand)),
		loads: make([]float64, n), prices: make([]float64, n), slopes: make([]float64, n),
		gradient: make([]float64, 0, n), curvature: make([]float64, 0, n), next: make([]float64, 0, n)}
	var largest float64
	for j, node := range nodes {
		p.queues[j] = newQueue(node)
		p.equal[j] = node.Workers / node.Service
		largest = max(largest, p.equal[j])
		p.price(j)
	}
	for j := range p.equal {
		p.equal[j] /= largest
	}
	for i := range p.shares {
		p.shares[i] = make([]float64, n)
	}
	return p
}

func (p *problem) price(j int) { p.prices[j], p.slopes[j] = p.queues[j].price(p.loads[j]) }

// improve moves row i to where its requests cost least, the other rows as they are. It
// returns by how much the row could have been better at most, and its latency, both in
// seconds per request.
func (p *problem) improve(i int) (gap, latency float64) {
	row, rtt := p.shares[i], p.rtts[i*len(p.queues):(i+1)*len(p.queues)]
	// What a node costs that the row does not use is its price alone.
	unused, at := math.Inf(1), 0
	for j, price := range p.prices {
		if cost := rtt[j] + price; cost < unused && row[j] == 0 {
			unused, at = cost, j
		}
	}
	if len(p.used[i]) == 0 { // at first all goes to the cheapest
		p.used[i] = append(p.used[i], at)
		row[at] = 1
		p.move(at, p.demand[i])
	}
	cheapest := unused
	for _, j := range p.used[i] {
		g := rtt[j] + p.prices[j] + resolution*row[j]/p.equal[j]
		cheapest = min(cheapest, g)
		latency += row[j] * g
	}
	if gap = latency - cheapest; gap <= enough*latency {
		return max(0, gap), latency
	}
	p.consider(i, latency)
	p.gradient, p.curvature, p.next = p.gradient[:0], p.curvature[:0], p.next[:0]
	for _, j := range p.used[i] {
		p.gradient = append(p.gradient, rtt[j]+p.prices[j]+resolution*row[j]/p.equal[j])
		p.curvature = append(p.curvature, resolution/p.equal[j]+p.demand[i]*p.slopes[j])
	}
	p.step(row, p.used[i])
	length := p.lineSearch(i)
	for k, j := range p.used[i] {
		before := row[j]
		row[j] += length * (p.next[k] - before)
		p.move(j, p.demand[i]*(row[j]-before))
	}
	return gap, latency
}

// consider has row i use all nodes that it uses, and those that are cheaper than what it
// costs now.
func (p *problem) consider(i int, cost float64) {
	row, rtt := p.shares[i], p.rtts[i*len(p.queues):(i+1)*len(p.queues)]
	used := p.used[i][:0]
	for j, price := range p.prices {
		if row[j] > 0 || rtt[j]+price < cost {
			used = append(used, j)
		}
	}
	p.used[i] = used
}

func (p *problem) move(j int, load float64) {
	if load != 0 {
		p.loads[j] = max(0, p.loads[j]+load)
		p.price(j)
	}
}

// step finds the row that is best if prices go on as straight lines (Newton's method; rows
// are separable, so the curvature is a diagonal): the same price for all that have a share.
// Those that would get less than nothing are left out, and the rest done again (Michelot
// 1986).
func (p *problem) step(row []float64, used []int) {
	p.next = p.next[:len(used)]
	for k := range p.next {
		p.next[k] = 1 // in
	}
	for {
		sum, weight := 1.0, 0.0
		for k, j := range used {
			if p.next[k] >= 0 {
				sum += p.gradient[k]/p.curvature[k] - row[j]
				weight += 1 / p.curvature[k]
			}
		}
		level, out := sum/weight, false
		for k, j := range used {
			if p.next[k] < 0 {
				continue
			}
			p.next[k] = row[j] + (level-p.gradient[k])/p.curvature[k]
			out = out || p.next[k] < 0
		}
		if !out {
			break
		}
	}
	for k := range p.next {
		p.next[k] = max(0, p.next[k])
	}
}

// lineSearch returns how far to go towards next: all the way unless prices have risen so
// much there that less is better.
func (p *problem) lineSearch(i int) float64 {
	row, rtt := p.shares[i], p.rtts[i*len(p.queues):(i+1)*len(p.queues)]
	ascends := func(length float64) bool {
		var slope float64
		for k, j := range p.used[i] {
			move := p.next[k] - row[j]
			if move == 0 {
				continue
			}
			price, _ := p.queues[j].price(max(0, p.loads[j]+length*p.demand[i]*move))
			slope += move * (rtt[j] + price + resolution*(row[j]+length*move)/p.equal[j])
		}
		return slope > 0
	}
	if !ascends(1) {
		return 1
	}
	low, high := 0.0, 1.0
	for range halvings {
		if middle := (low + high) / 2; ascends(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return (low + high) / 2
}
