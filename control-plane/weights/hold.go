package weights

import "math"

const (
	// worthwhile is by how much a row's expected latency has to improve for it to be replaced,
	// as a part of it. Each change makes Envoys build their cluster anew.
	worthwhile = 0.05
	// chance is by how many standard errors loads may have been misjudged without it being
	// worthwhile only because of that: of dozens of rows that are looked at hundreds of times
	// an hour, none should look so by chance.
	chance = 4
)

// Hold tells which rows of the weights in use are to be replaced by the wanted ones: those
// whose requests would gain enough, even if chance has made the loads look more different
// than they are. Of those whose nodes have come or gone nothing can be held; that is for
// the caller to see, as rows and columns of both are f's.
func Hold(f Function, held, wanted Matrix) []bool {
	replace := make([]bool, len(wanted))
	if len(wanted) == 0 || len(held) != len(wanted) || len(held[0]) != len(wanted[0]) {
		for i := range replace {
			replace[i] = true
		}
		return replace
	}
	p := newProblem(f)
	p.load(held)
	less, more := make([]float64, len(p.queues)), make([]float64, len(p.queues))
	for j := range p.queues {
		less[j], more[j] = p.likely(j, f)
	}
	for i := range held {
		var gain float64
		for j := range p.queues {
			rtt, moved := p.rtts[i*len(p.queues)+j], held[i][j]-wanted[i][j]
			// What the row takes from a node no longer costs the node's price, what it gives
			// costs another's. At the optimum these are equal, and near it what there is to
			// gain is the square of what moves.
			if moved > 0 {
				gain += moved * (rtt + less[j])
			} else {
				gain += moved * (rtt + more[j])
			}
		}
		replace[i] = !(gain <= worthwhile*p.latency(i, held[i]))
	}
	return replace
}

// likely are the bounds of node j's price for what may be chance. Random arrivals that are
// counted with a memory of a time T are as good as counted for 2T; times of service that are
// as random make the square of the error twice as large.
func (p *problem) likely(j int, f Function) (less, more float64) {
	over := f.Over
	if over <= 0 {
		over = averageUnknown
	}
	off := chance * math.Sqrt(p.loads[j]/over.Seconds())
	less, _ = p.queues[j].price(max(0, p.loads[j]-off))
	more, _ = p.queues[j].price(p.loads[j] + off)
	return less, more
}

// Latency returns the expected latency of a request under the weights w, in seconds, over
// all sources.
func Latency(f Function, w Matrix) float64 {
	p := newProblem(f)
	p.load(w)
	var sum, demand float64
	for i := range w {
		sum += p.demand[i] * p.latency(i, w[i])
		demand += p.demand[i]
	}
	return sum / demand
}

// load puts on the nodes what the weights w send there.
func (p *problem) load(w Matrix) {
	for i, row := range w {
		for j, share := range row {
			p.move(j, p.demand[i]*share)
		}
	}
}

// latency is the expected one of a request of source i with the shares of row, in seconds.
func (p *problem) latency(i int, row []float64) (latency float64) {
	for j := range p.queues {
		if row[j] == 0 { // of hundreds of nodes a row uses a few
			continue
		}
		q := &p.queues[j]
		latency += row[j] * (p.rtts[i*len(p.queues)+j] + q.service + q.wait(p.loads[j]))
	}
	return latency
}
