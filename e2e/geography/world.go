// Package geography is a world of nodes whose round-trip times are as distances on Earth
// and access links make them. In it the daemons' and the control plane's own cores measure
// as they do in real networks: how far off are they for pairs that nobody measured?
package geography

import (
	"math"
	"math/rand/v2"
	"time"
)

// The world's constants are of a continent-wide edge-cloud: what a wire adds is physics, the
// others are orders of magnitude from public measurements.
const (
	earthRadius = 6371.0 // km
	// kmPerMs is light in a fibre, there and back: 200 km in a millisecond one way.
	kmPerMs = 100.0
	// windingness is how much longer fibres are than great circles.
	windingness = 1.3

	// A region has cloudNodes nodes, each cloudAccess from the backbone. The other nodes are
	// at the edge, siteNodes in one site, around a region.
	cloudNodes  = 40
	cloudAccess = 0.1 // ms
	siteNodes   = 4
	// Edge sites' access links: edgeAccess ms by edgeSpread, log-normal.
	edgeAccess = 3.0
	edgeSpread = 0.5
	// edgeLatitude and edgeLongitude are how far from their region edge sites are, in degrees
	// (standard deviations).
	edgeLatitude, edgeLongitude = 6.0, 8.0
	// siteLeast and siteMost are in ms, between nodes of one site.
	siteLeast, siteMost = 0.2, 0.5
	// backboneLeast is in ms, between sites however near.
	backboneLeast = 0.5

	// A sample is off by queues: by queueShare of the round trip and queueLeast ms on average,
	// exponentially; and spikeShare of them wait for once or twice the round trip more.
	queueShare = 0.03
	queueLeast = 0.05
	spikeShare = 0.02
)

// regions are where large clouds are, in degrees north and east.
var regions = [][2]float64{{39, -77}, {37, -122}, {41, -83}, {-23, -46}, {53, -6}, {50, 8}, {59, 18}, {1, 104}, {35, 139}, {19, 73}, {-34, 151}, {25, 51}}

// World has the true round-trip times of its nodes.
type World struct {
	truth [][]time.Duration
	site  []int
}

type place struct {
	north, east float64
	access      float64
	site        int
}

// New returns a world of n nodes. Ways between sites are longer or shorter than distance
// says by detours, log-normal: they break the triangle inequality, which coordinates
// cannot follow.
func New(n int, detours float64, seed uint64) *World {
	random := rand.New(rand.NewPCG(seed, 0))
	places := people(n, random)
	w := &World{truth: make([][]time.Duration, n), site: make([]int, n)}
	for i := range w.truth {
		w.truth[i], w.site[i] = make([]time.Duration, n), places[i].site
	}
	route := map[[2]int]float64{}
	for i, a := range places {
		for j, b := range places[:i] {
			var ms float64
			if a.site == b.site {
				ms = siteLeast + (siteMost-siteLeast)*random.Float64()
			} else {
				between := [2]int{min(a.site, b.site), max(a.site, b.site)}
				if route[between] == 0 {
					route[between] = math.Exp(detours * random.NormFloat64())
				}
				ms = backboneLeast + greatCircle(a, b)/kmPerMs*windingness*route[between] + a.access + b.access
			}
			rtt := time.Duration(ms * float64(time.Millisecond))
			w.truth[i][j], w.truth[j][i] = rtt, rtt
		}
	}
	return w
}

func people(n int, random *rand.Rand) []place {
	var places []place
	for site, at := range regions {
		for range min(cloudNodes, n/(2*len(regions))+1) {
			places = append(places, place{at[0], at[1], cloudAccess, site})
		}
	}
	for site := len(regions); len(places) < n; site++ {
		near := regions[random.IntN(len(regions))]
		at := place{near[0] + edgeLatitude*random.NormFloat64(), near[1] + edgeLongitude*random.NormFloat64(), edgeAccess * math.Exp(edgeSpread*random.NormFloat64()), site}
		for range siteNodes {
			places = append(places, at)
		}
	}
	return places[:n]
}

func greatCircle(a, b place) float64 {
	const degree = math.Pi / 180
	cos := math.Sin(a.north*degree)*math.Sin(b.north*degree) + math.Cos(a.north*degree)*math.Cos(b.north*degree)*math.Cos((a.east-b.east)*degree)
	return earthRadius * math.Acos(max(-1, min(1, cos)))
}

// sample is what a probe sees.
func (w *World) sample(i, j int, random *rand.Rand) time.Duration {
	rtt := float64(w.truth[i][j])
	seen := rtt*(1+queueShare*random.ExpFloat64()) + queueLeast*float64(time.Millisecond)*random.ExpFloat64()
	if random.Float64() < spikeShare {
		seen += rtt * (1 + random.Float64())
	}
	return time.Duration(seen)
}
