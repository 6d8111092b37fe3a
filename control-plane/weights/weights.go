// Package weights says how a function's requests are to be spread over the nodes that have
// instances of it, for each node that they come from. It measures nothing: whoever calls it
// brings the measurements, of which it believes nothing that cannot be.
//
// There are two policies. Inverse is FaaSt's (Nguyen et al., "FaaSt: A Latency-aware
// Serverless Scheme for Edge-Cloud Environments", section IV). Balanced asks instead which
// weights make the expected latency least.
package weights

import (
	"math"
	"slices"
	"time"
)

// Function is what has been measured of one function. All of it may be wrong.
type Function struct {
	// Demand is how many requests come from each source, in requests per second.
	Demand []float64
	// Nodes are those that have instances.
	Nodes []Node
	// Over is the time over which Demand and the nodes' times are averaged; 0: averageUnknown.
	Over time.Duration
	// RTT is the round-trip time from a source to a node, in seconds; NaN: not known.
	RTT func(source, node int) float64
}

// Node is what a node has reported of one function. What is zero, negative, infinite or
// not a number is not known.
type Node struct {
	// Age is how long ago it reported. Below zero: clocks differ, it was just now.
	Age time.Duration
	// Service is how long a request holds a worker, in seconds.
	Service float64
	// Sojourn is how long a request is on the node, in seconds: Service, and the wait for
	// a worker before it. It is the paper's P.
	Sojourn float64
	// Workers is how many requests the node works on at the same time.
	Workers float64
	// Busy is how many workers are busy for other functions, on average.
	Busy float64
	// Success is which part of the requests the node answers that the function's other nodes
	// would answer; 0: all. A request that fails was for nothing: an answer takes so many times as
	// long, and so little of the node can be relied on that it comes back bit by bit.
	Success float64
}

// Matrix has a row for each source, and in it the share of each node. Rows sum to 1.
type Matrix [][]float64

const (
	// rttLimit is the longest round trip that is believed, in seconds: twice around the
	// world by satellite. What is above it is as far as can be.
	rttLimit = 10.0
	// rttUnknown stands for the round trips of a source none of whose is known, in seconds:
	// only that they are equal matters, and that the source itself is nearer.
	rttUnknown = 50e-3
	// serviceUnknown stands for the time of a function that nobody has measured, in seconds.
	serviceUnknown = 10e-3
	// serviceLeast and serviceLimit bound the times that are believed, in seconds: less
	// than a round trip over loopback is not a request, more is a job.
	serviceLeast, serviceLimit = 10e-6, 3600.0
	// workersUnknown is what each instance has.
	workersUnknown = 1.0
	// workersLimit bounds what one node can draw on itself by its own word.
	workersLimit = 10_000.0
	// successLeast bounds how little of a node may be left because its requests fail.
	successLeast = 1e-3
	// demandLeast stands for a source without requests, in requests per second: it gets
	// the row that is best for its first one.
	demandLeast = 1e-3
	// demandLimit is the most that is believed, in requests per second.
	demandLimit = 1e7

	// averageUnknown stands for the time of an average of which nobody has said it.
	averageUnknown = 30 * time.Second

	// silence is how much longer than the node that was heard of last a node may be silent
	// before it counts for less. Reports come each second; this many may be lost.
	silence = 5 * time.Second
	// silenceHalving is the time in which a silent node's workers count for half.
	silenceHalving = 5 * time.Second
	// silentLeast is what is left of a silent node's workers. It is still an endpoint: were
	// it gone, Kubernetes or Envoy would have said so.
	silentLeast = 1e-3
)

// believe returns x if it is a positive number, at most limit and at least least, and
// otherwise without.
func believe(x, least, limit, without float64) float64 {
	if !(x > 0) { // or not a number
		return without
	}
	return min(max(x, least), limit)
}

// demands returns what is believed of the demand.
func (f Function) demands() []float64 {
	d := make([]float64, len(f.Demand))
	for i, x := range f.Demand {
		d[i] = believe(x, demandLeast, demandLimit, demandLeast)
	}
	return d
}

// rtts returns what is believed of the round trips, row by row. One that is not known is as
// long as the source's longest to another.
func (f Function) rtts() []float64 {
	n := len(f.Nodes)
	all := make([]float64, len(f.Demand)*n)
	for i := range f.Demand {
		row, longest := all[i*n:(i+1)*n], -1.0
		for j := range row {
			row[j] = f.RTT(i, j)
			if !(row[j] >= 0) {
				row[j] = -1
			}
			row[j] = min(row[j], rttLimit)
			longest = max(longest, row[j])
		}
		if longest <= 0 { // at most the way to itself is known
			longest = rttUnknown
		}
		for j := range row {
			if row[j] < 0 {
				row[j] = longest
			}
		}
	}
	return all
}

// known replaces what is not known in xs by the median of what is, or by without.
func known(xs []float64, without float64) {
	var heard []float64
	for _, x := range xs {
		if !math.IsNaN(x) {
			heard = append(heard, x)
		}
	}
	if len(heard) > 0 {
		slices.Sort(heard)
		without = heard[len(heard)/2]
	}
	for j, x := range xs {
		if math.IsNaN(x) {
			xs[j] = without
		}
	}
}

// nodes returns what is believed of the nodes' reports. A node that has not served the
// function yet is taken to be like the others. A silent one counts for less and less;
// if all are silent it is us who hear nothing, and all stays as it was.
func (f Function) nodes() []Node {
	service, sojourn := make([]float64, len(f.Nodes)), make([]float64, len(f.Nodes))
	freshest := time.Duration(math.MaxInt64)
	for j, n := range f.Nodes {
		service[j] = believe(n.Service, serviceLeast, serviceLimit, math.NaN())
		sojourn[j] = believe(n.Sojourn, serviceLeast, serviceLimit, math.NaN())
		freshest = min(freshest, max(0, n.Age))
	}
	known(service, serviceUnknown)
	for j := range sojourn {
		if math.IsNaN(sojourn[j]) {
			sojourn[j] = service[j]
		}
	}
	nodes := make([]Node, len(f.Nodes))
	for j, n := range f.Nodes {
		workers := believe(n.Workers, silentLeast, workersLimit, workersUnknown)
		busy := believe(n.Busy, 0, workers, 0)
		left := 1.0
		if late := max(0, n.Age) - freshest - silence; late > 0 {
			left = max(silentLeast, math.Exp2(-late.Seconds()/silenceHalving.Seconds()))
		}
		success := believe(n.Success, successLeast, 1, 1)
		nodes[j] = Node{Age: max(0, n.Age), Service: service[j] / success, Sojourn: sojourn[j] / success, Workers: workers * left * success, Busy: busy * left * success, Success: success}
	}
	return nodes
}
