package geography

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/probe"
)

const (
	// step is how far the world's time goes at once: no node probes more often.
	step = time.Second / probe.Rate
	// neighboursEvery is how often nodes are told whom to probe, as the control plane does.
	neighboursEvery = 30 * time.Second
)

// Result is how far off the control plane is, and what it took.
type Result struct {
	// P50 and P95 are of the relative errors of all pairs that neither node measured;
	// NearP50 and NearP95 of those within NearRTT.
	P50, P95         float64
	NearP50, NearP95 float64
	// Pairs are all there are, Measured those that are not in the above.
	Pairs, Measured int
	// ProbesMost is the most that one node sent within one second, ProbesLast the mean per
	// node and second of the last minute.
	ProbesMost int
	ProbesLast float64
	// Unknown pairs have no estimate.
	Unknown int
}

// NearRTT is what Result calls near.
const NearRTT = 20 * time.Millisecond

// Measure has the world's nodes measure for a time.
func (w *World) Measure(length time.Duration, seed uint64) Result {
	n := len(w.truth)
	random := rand.New(rand.NewPCG(seed, 1))
	names, index := make([]string, n), map[string]int{}
	plans := make([]*probe.Plan, n)
	m := topology.New(nil)
	for i := range plans {
		names[i] = "node-" + strconv.Itoa(i)
		index[names[i]] = i
		plans[i] = probe.NewPlan(names[i])
		m.Join(names[i])
	}
	var r Result
	second, last := make([]int, n), 0
	next := make([]time.Time, n) // when a plan has something to do
	began := time.Unix(1_000_000, 0)
	for now := began; now.Before(began.Add(length)); now = now.Add(step) {
		since := now.Sub(began)
		if since%time.Second == 0 {
			clear(second)
		}
		for i, plan := range plans {
			if since%neighboursEvery == 0 {
				var peers []probe.Peer
				for _, name := range m.Neighbours(names[i], nil, now) {
					peers = append(peers, probe.Peer{Name: name})
				}
				plan.SetPeers(peers, now)
				next[i] = now
			}
			if now.Before(next[i]) {
				continue
			}
			if said := plan.Report(now); said != nil {
				m.Report(names[i], said, now)
			}
			peer, wait, ok := plan.Next(now)
			next[i] = now.Add(wait)
			if ok {
				j := index[peer.Name]
				// What goes over the wire, with all that the other side checks.
				at, err := coordinate.Parse(plans[j].Point().Message())
				if err != nil {
					panic(err)
				}
				plan.Answered(peer.Name, w.sample(i, j, random), at, now)
				second[i]++
				r.ProbesMost = max(r.ProbesMost, second[i])
				if since >= length-time.Minute {
					last++
				}
			}
		}
	}
	r.ProbesLast = float64(last) / float64(n) / min(length, time.Minute).Seconds()
	w.judge(m, names, began.Add(length), &r)
	return r
}

func (w *World) judge(m *topology.Map, names []string, now time.Time, r *Result) {
	var all, near []float64
	for i := range w.truth {
		for j := range w.truth[:i] {
			r.Pairs++
			e := m.RTT(names[i], names[j], now)
			switch e.Source {
			case topology.Own, topology.Other:
				r.Measured++
				continue
			case topology.Unknown:
				r.Unknown++
				continue
			}
			truth := w.truth[i][j]
			off := math.Abs(float64(e.RTT-truth)) / float64(truth)
			all = append(all, off)
			if truth <= NearRTT {
				near = append(near, off)
			}
		}
	}
	r.P50, r.P95 = quantile(all, 0.5), quantile(all, 0.95)
	r.NearP50, r.NearP95 = quantile(near, 0.5), quantile(near, 0.95)
}

func quantile(of []float64, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[int(q*float64(len(of)-1))]
}
