package cache_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/cache/trace"
	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/result"
)

func TestTheTableHasAColumnForEachValue(t *testing.T) {
	var b strings.Builder
	if err := cache.Table(&b, []cache.Point{
		{Case: "1 KB", Values: []cache.Value{{Name: "without ms", Value: 12.34567}, {Name: "ours ms", Value: 1}}},
		{Case: "1 GB", Values: []cache.Value{{Name: "ours ms", Value: 123456}, {Name: "floor ms", Value: 0.5}}},
	}); err != nil {
		t.Fatal(err)
	}
	want := "        without ms  ours ms  floor ms\n" +
		"  1 KB       12.35        1          \n" +
		"  1 GB               123456       0.5\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestTheGainIsTheLeast(t *testing.T) {
	points := []cache.Point{
		{Values: []cache.Value{{"LRU %", 30}, {"S3-FIFO %", 40}, {"LRU bytes %", 20}, {"S3-FIFO bytes %", 27}}},
		{Values: []cache.Value{{"LRU %", 50}, {"S3-FIFO %", 56}, {"LRU bytes %", 10}, {"S3-FIFO bytes %", 20}}},
	}
	requests, bytes := cache.Gains(points)
	figures := map[string]float64{cache.HitRatioGain: requests, cache.ByteHitGain: bytes}
	got := cache.Results{cache.Eviction: {Points: points, Figures: figures}}.Summary()
	if d := cmp.Diff(result.Summary{cache.HitRatioGain: 0.06, cache.ByteHitGain: 0.07}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// The bound of the benchmark, for one of its mixes.
func TestOursHitsMoreThanLRU(t *testing.T) {
	p := cache.ReplayMix(trace.Mix{Zipf: 0.8, Scans: 0.2}, 1)
	if requests, bytes := cache.Gains([]cache.Point{p}); requests < 0.05 || bytes < 0.05 {
		t.Errorf("%+.3f of the requests, %+.3f of the bytes", requests, bytes)
	}
	figures := cache.Results{cache.Eviction: {Points: []cache.Point{p}}}.Figures()
	if panels := figures["cache-eviction.svg"]; len(panels) != 2 || len(panels[0].(chart.Lines).Series) != 2 {
		t.Errorf("%+v", figures)
	}
}

// A workflow's steps are the layers of its ways' bars, on one node and on two.
func TestTheDrawingOfWorkflows(t *testing.T) {
	point := func(name string) cache.Point {
		return cache.Point{Case: name, Values: []cache.Value{{"without", 1000}, {"ours", 10}}}
	}
	figures := cache.Results{cache.Flows: {Points: []cache.Point{point("image, one node, scale down"), point("image, one node, scale ran"),
		point("image, one node, scale up"), point("image, one node, moved"), point("image, two nodes, scale up")}}}.Figures()
	one := figures["cache-flows-one.svg"]
	if len(one) != 1 || len(figures["cache-flows-two.svg"]) != 1 {
		t.Fatalf("%+v", figures)
	}
	bars := one[0].(chart.Bars)
	if d := cmp.Diff([]string{"scale down", "scale up"}, bars.Layers); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff(chart.Bar{Label: "without", Values: []float64{1, 1}}, bars.Bars[0]); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
