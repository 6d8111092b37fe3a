package simulator

import (
	"slices"
	"time"
)

// Result is what became of a world's requests. Times are the callers'.
type Result struct {
	World, Policy string
	// Requests counts, of which Failed were not answered, and Answered were before the
	// world's end.
	Requests, Failed, Answered int
	// Window is the time in which they began.
	Window time.Duration
	// Pushes is how many rows of weights the control plane has replaced, each of which rebuilds
	// a gateway's cluster; Latest is when the last was.
	Pushes int
	Latest time.Duration

	w      *World
	took   []time.Duration         // of all, failed ones included
	region map[int][]time.Duration // of those that begin in a region
	served []served
}

// served is where a request ended; -1: nowhere.
type served struct {
	at   time.Duration
	node int
}

func newResult(w *World, policy string) *Result {
	return &Result{World: w.Name, Policy: policy, Window: w.Length - w.Warmup, w: w, region: map[int][]time.Duration{}}
}

func (r *Result) add(q *request, took time.Duration, node int) {
	if q.at < r.w.Warmup {
		return
	}
	r.Requests++
	if q.failed {
		r.Failed++
	} else if q.at+took <= r.w.Length {
		r.Answered++
	}
	region := r.w.Nodes[r.w.Sources[q.source].Node].Region
	r.took = append(r.took, took)
	r.region[region] = append(r.region[region], took)
	r.served = append(r.served, served{q.at, node})
}

// finish is called once all is known.
func (r *Result) finish(at []time.Duration) {
	r.Pushes = len(at)
	if len(at) > 0 {
		r.Latest = at[len(at)-1]
	}
	slices.Sort(r.took)
	for _, took := range r.region {
		slices.Sort(took)
	}
}

// Quantile is that of all latencies, failed requests included.
func (r *Result) Quantile(q float64) time.Duration { return quantile(r.took, q) }

// RegionQuantile is that of the requests that begin in a region.
func (r *Result) RegionQuantile(region int, q float64) time.Duration {
	return quantile(r.region[region], q)
}

// Mean is the mean latency.
func (r *Result) Mean() time.Duration {
	var sum time.Duration
	for _, t := range r.took {
		sum += t
	}
	return sum / time.Duration(max(1, len(r.took)))
}

// Sent is how many requests that began from one moment to another ended on a node.
func (r *Result) Sent(node int, from, to time.Duration) (n int) {
	for _, s := range r.served {
		if s.node == node && s.at >= from && s.at < to {
			n++
		}
	}
	return n
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
