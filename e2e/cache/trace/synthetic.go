package trace

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Mix is what a synthetic trace is made of.
type Mix struct {
	// Zipf is the exponent of the objects' popularity: the one of rank r is asked for in proportion to r^-Zipf.
	Zipf float64
	// Scans is the share of the requests that belong to scans: runs over objects that are asked for once, as a
	// job does that goes through a data set.
	Scans float64
}

const (
	synthetics = 120_000 // requests
	popular    = 20_000  // objects besides those of scans
	scanLength = 2000    // requests
	// churn is the probability that at a request one of the popular objects is replaced by a new one.
	churn = 0.002
	// Sizes are log-normal: sizes of files are (Downey, "The structural cause of file size distributions", 2001).
	// The median of 1.1 MB and the mean of 8 MB are between pictures and models.
	sizeMedian, sizeSigma = 1.1e6, 2.0
	sizeMost              = 512e6
)

// Synthetic returns the mix's trace that belongs to the seed.
func Synthetic(m Mix, seed uint64) Trace {
	r := rand.New(rand.NewPCG(seed, 0))
	var t Trace
	var sizes []int64
	object := func() int {
		sizes = append(sizes, int64(min(sizeMost, max(1, sizeMedian*math.Exp(sizeSigma*r.NormFloat64())))))
		return len(sizes) - 1
	}
	byRank, upTo, sum := make([]int, popular), make([]float64, popular), 0.0
	for i := range byRank {
		sum += math.Pow(float64(i+1), -m.Zipf)
		byRank[i], upTo[i] = object(), sum
	}
	asked := map[int]bool{}
	for scan, scans := 0, 0.0; len(t.Requests) < synthetics; {
		var next int
		switch {
		case scan > 0:
			scan--
			next = object()
		case m.Scans*float64(len(t.Requests)) > scans:
			scan = scanLength
			scans += scanLength
			continue
		default:
			if r.Float64() < churn {
				byRank[r.IntN(popular)] = object()
			}
			next = byRank[min(popular-1, sort.SearchFloat64s(upTo, r.Float64()*sum))]
			if !asked[next] {
				asked[next] = true
				t.Footprint += sizes[next]
			}
		}
		t.Requests = append(t.Requests, Request{Object: next, Size: sizes[next]})
	}
	return t
}
