package weights

// worthwhile is by how much a row's expected latency has to improve for it to be replaced,
// as a part of it. Each change makes Envoys build their cluster anew. Near the optimum the
// latency is flat: a load that is measured over half a minute, with the noise that random
// arrivals have, costs less than a tenth of this.
const worthwhile = 0.05

// Hold tells which rows of the weights in use are to be replaced by the wanted ones: those
// whose requests would gain enough. Of those whose nodes have come or gone nothing can be
// held; that is for the caller to see, as rows and columns of both are f's.
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
	for i := range held {
		var gain float64
		for j := range p.queues {
			// A row gains what its moved shares no longer cost, at today's prices. At the
			// optimum these are equal, and what it gains is the square of what it moves.
			gain += (held[i][j] - wanted[i][j]) * (p.rtts[i*len(p.queues)+j] + p.prices[j])
		}
		replace[i] = !(gain <= worthwhile*p.latency(i, held[i]))
	}
	return replace
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
		q := &p.queues[j]
		latency += row[j] * (p.rtts[i*len(p.queues)+j] + q.service + q.wait(p.loads[j]))
	}
	return latency
}
