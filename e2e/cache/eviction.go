package cache

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/headstart-mesh/headstart/e2e/cache/trace"
	"github.com/headstart-mesh/headstart/e2e/chart"
)

// Eviction is the part that compares what goes first from a cache.
const Eviction = "eviction"

// Its columns. Hits are shares of the requests, and of their bytes.
const (
	zipf, scans        = "Zipf", "scans %"
	lruHits, ourHits   = "LRU %", "S3-FIFO %"
	lruBytes, ourBytes = "LRU bytes %", "S3-FIFO bytes %"
)

const (
	part    = 10 // of the footprint: the cache has a tenth of it
	percent = 100
)

// ReplayBoth has two caches see a trace, with a tenth of the footprint: one with LRU, and the product's.
func ReplayBoth(name string, t trace.Trace) Point {
	capacity := t.Footprint / part
	lru, ours := trace.Replay(t, capacity, trace.LRU()), trace.Replay(t, capacity, trace.Ours())
	return Point{Case: name, Values: []Value{{"GB", float64(t.Footprint) / 1e9},
		{lruHits, percent * lru.Requests}, {ourHits, percent * ours.Requests},
		{lruBytes, percent * lru.Bytes}, {ourBytes, percent * ours.Bytes}}}
}

// ReplayMix is ReplayBoth with a synthetic trace.
func ReplayMix(m trace.Mix, seed uint64) Point {
	p := ReplayBoth(fmt.Sprintf("seed %d", seed), trace.Synthetic(m, seed))
	p.Values = append([]Value{{zipf, m.Zipf}, {scans, percent * m.Scans}}, p.Values...)
	return p
}

// Gains are the least of the points: how much larger a part of requests, and of bytes, hits are than with LRU.
func Gains(points []Point) (requests, bytes float64) {
	requests, bytes = math.Inf(1), math.Inf(1)
	for _, p := range points {
		requests = min(requests, (p.Of(ourHits)-p.Of(lruHits))/percent)
		bytes = min(bytes, (p.Of(ourBytes)-p.Of(lruBytes))/percent)
	}
	return requests, bytes
}

// drawEviction draws the means of the seeds over the share of scans.
func drawEviction(points []Point) map[string][]chart.Panel {
	var panels []chart.Panel
	for _, of := range []struct{ title, lru, ours string }{
		{"Requests that are hits", lruHits, ourHits}, {"Bytes of hits", lruBytes, ourBytes},
	} {
		panel := chart.Lines{Title: of.title, XLabel: "% of the requests are scans", YLabel: "%"}
		for _, exponent := range distinct(points, zipf) {
			with := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Of(zipf) != exponent })
			for _, s := range []struct{ name, column string }{{"LRU", of.lru}, {"S3-FIFO", of.ours}} {
				line := chart.Series{Name: fmt.Sprintf("%s, Zipf %g", s.name, exponent), Dashed: s.column == of.lru}
				for _, x := range distinct(with, scans) {
					line.X, line.Y = append(line.X, x), append(line.Y, mean(with, s.column, x))
				}
				panel.Series = append(panel.Series, line)
			}
		}
		panels = append(panels, panel)
	}
	return map[string][]chart.Panel{"cache-eviction.svg": panels}
}

func distinct(points []Point, column string) []float64 {
	all := map[float64]bool{}
	for _, p := range points {
		all[p.Of(column)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func mean(points []Point, column string, share float64) float64 {
	sum, n := 0.0, 0.0
	for _, p := range points {
		if p.Of(scans) == share {
			sum += p.Of(column)
			n++
		}
	}
	return sum / n
}
