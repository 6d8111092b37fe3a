// Package routing is what the benchmark of routing makes of its measurements: the points and
// figures of FaaSt's evaluation (section IV.B), and bounds. What measures is in
// cmd/bench-routing.
package routing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// The names of those compared that figures and bounds are about.
const (
	Default = "round robin"
	FaaSt   = "FaaSt"
	Ours    = "Headstart"
	// Oracle knows everything. It exists in the simulator only.
	Oracle = "oracle"
)

// Patience is how long a user waits for an answer. An answer that takes longer is none.
const Patience = time.Second

// Case is what users there are and how far the edge is from the cloud.
type Case struct {
	// RTT is the round trip between the edge and each of the cloud's nodes, normally
	// distributed with Jitter as its standard deviation.
	RTT    time.Duration `json:"rtt_ns"`
	Jitter time.Duration `json:"jitter_ns"`
	// Users are as many on each side, each with UserRate requests per second.
	Users int `json:"users"`
}

// UserRate is in requests per second.
const UserRate = 10

// Room tells whether the edge can serve its own users, with so many workers.
func (c Case) Room(workers int) bool {
	return float64(c.Users)*UserRate*MeanHold.Seconds() < float64(workers)
}

// MeanHold is how long a request holds a worker on average.
const MeanHold = 4 * time.Millisecond

func (c Case) String() string {
	return fmt.Sprintf("%d users, %v +- %v", c.Users, c.RTT, c.Jitter)
}

// Sample is what became of one request.
type Sample struct {
	// Source is the node whose users sent it, By the one that answered, empty if none did.
	Source, By string
	// Sent is since the load began, Took from there to the answer's end.
	Sent, Took time.Duration
	// Late is how long after it was due it was sent.
	Late time.Duration
	Lost bool
}

// Point is a variant in a case.
type Point struct {
	Case
	Variant string `json:"variant"`
	// Room tells whether the edge can serve its own users.
	Room bool `json:"room"`
	// Sent and Completed count requests; the others are lost, or came after Patience.
	Sent      int `json:"sent"`
	Completed int `json:"completed"`
	// Quantiles of the time to the answer are in ms, and a lost one has taken Patience.
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
	// CDF has the quantiles 0, 1/CDFSteps, ... 1, in ms.
	CDF []float64 `json:"cdf_ms"`
	// Served has for each node how many of its answers took how long, in steps of Bin; the
	// last is of all that took longer.
	Served map[string][]int `json:"served"`
	// Away is the share of the edge's requests that another node answered.
	Away float64 `json:"away"`
	// Held is how long requests held a worker on average, in ms: more than MeanHold where the
	// machine has no time for the emulation.
	Held float64 `json:"held_ms"`
	// Late is by how much later than due 1 request in 100 was sent at least, in ms: a point
	// where it is not far below P50 is of the machine, not of the variant.
	Late float64 `json:"late_p99_ms"`
}

const (
	// CDFSteps are enough to see 1 request in 200.
	CDFSteps = 200
	// Bin is a node's in Served, bins up to half of Patience.
	Bin  = 5 * time.Millisecond
	bins = int(Patience / 2 / Bin)
)

// NewPoint sums samples up. edge is the node whose requests may go away.
func NewPoint(c Case, variant, edge string, room bool, samples []Sample) Point {
	p := Point{Case: c, Variant: variant, Room: room, Sent: len(samples), Served: map[string][]int{}}
	took, late := make([]float64, len(samples)), make([]float64, len(samples))
	var atEdge, away int
	for i, s := range samples {
		lost := s.Lost || s.Took > Patience
		if lost {
			s.Took = Patience
		} else {
			p.Completed++
			if p.Served[s.By] == nil {
				p.Served[s.By] = make([]int, bins+1)
			}
			p.Served[s.By][min(int(s.Took/Bin), bins)]++
		}
		if s.Source == edge && s.By != "" {
			atEdge++
			if s.By != edge {
				away++
			}
		}
		took[i], late[i] = float64(s.Took)/float64(time.Millisecond), float64(s.Late)/float64(time.Millisecond)
	}
	slices.Sort(took)
	slices.Sort(late)
	p.Late = Quantile(late, 0.99)
	p.P50, p.P95, p.P99 = Quantile(took, 0.5), Quantile(took, 0.95), Quantile(took, 0.99)
	for i := range CDFSteps + 1 {
		p.CDF = append(p.CDF, Quantile(took, float64(i)/CDFSteps))
	}
	if atEdge > 0 {
		p.Away = float64(away) / float64(atEdge)
	}
	return p
}

// Quantile returns the q-th quantile of sorted values: the least that is not below a share q
// of them. Of none it is 0.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(max(int(math.Ceil(q*float64(len(sorted))))-1, 0), len(sorted)-1)]
}

// byCase groups points, in the order of round trip and users.
func byCase(points []Point) [][]Point {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.Users, b.Users))
	})
	var groups [][]Point
	for i, p := range sorted {
		if i == 0 || p.Case != sorted[i-1].Case {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], p)
	}
	return groups
}

func find(points []Point, variant string) (Point, bool) {
	i := slices.IndexFunc(points, func(p Point) bool { return p.Variant == variant })
	if i < 0 {
		return Point{}, false
	}
	return points[i], true
}
