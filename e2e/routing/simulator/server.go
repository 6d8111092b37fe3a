package simulator

import (
	"slices"
	"time"
)

// load is what a node says of itself with an answer or on being asked.
type load struct {
	inFlight, workers int
	// service is how long requests hold a worker, of all functions.
	service time.Duration
	// latency is how long requests took on the node when as many were in flight as now.
	latency time.Duration
}

// server is a node at work.
type server struct {
	// free is when each worker is free, soonest first.
	free     []time.Duration
	inFlight int
	// coming are requests on their way here, by their time of arrival.
	coming  []coming
	service time.Duration // of all functions, an average of the last
	recent  map[int]*ring // by requests in flight on arrival
	counts  []count       // by function, since the start
}

type coming struct {
	at   time.Duration
	work time.Duration
}

// count is what a node has counted of one function.
type count struct {
	from             []int // by source
	done             int
	service, sojourn time.Duration
}

// recentSamples is how many latencies a server keeps for each number of requests in flight.
const recentSamples = 8

type ring struct {
	took []time.Duration
	next int
}

func (r *ring) add(took time.Duration) {
	if len(r.took) < recentSamples {
		r.took = append(r.took, took)
		return
	}
	r.took[r.next] = took
	r.next = (r.next + 1) % recentSamples
}

func (r *ring) median() time.Duration {
	sorted := slices.Clone(r.took)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// latency is Prequal's estimate: the median of what requests took that found about as many
// in flight.
func (s *server) latency() time.Duration {
	for d := 0; d <= s.inFlight+recentSamples; d++ {
		if r := s.recent[s.inFlight-d]; r != nil {
			return r.median()
		}
		if r := s.recent[s.inFlight+d]; r != nil {
			return r.median()
		}
	}
	return 0
}

func (s *server) load() load {
	return load{inFlight: s.inFlight, workers: len(s.free), service: s.service, latency: s.latency()}
}

// take gives the worker that is free first to a request that arrives at a time, and returns
// when it is done. speed is the node's at a time.
func take(free []time.Duration, at, work time.Duration, speed func(time.Duration) float64) (start, end time.Duration) {
	start = max(at, free[0])
	end = start + time.Duration(float64(work)/speed(start))
	// Into its place, as one of a few.
	k := 1
	for ; k < len(free) && free[k] < end; k++ {
		free[k-1] = free[k]
	}
	free[k-1] = end
	return start, end
}

// expect notes a request that is on its way.
func (s *server) expect(at, work time.Duration) {
	k := len(s.coming)
	for k > 0 && s.coming[k-1].at > at {
		k--
	}
	s.coming = slices.Insert(s.coming, k, coming{at, work})
}

// finish returns when a request that would arrive at a time would be done, with all that is
// there by then: the clairvoyant's knowledge. scratch is room for the workers.
func (s *server) finish(at, work time.Duration, speed func(time.Duration) float64, scratch []time.Duration) time.Duration {
	scratch = append(scratch[:0], s.free...)
	for _, c := range s.coming {
		if c.at > at {
			break
		}
		take(scratch, c.at, c.work, speed)
	}
	_, end := take(scratch, at, work, speed)
	return end
}
