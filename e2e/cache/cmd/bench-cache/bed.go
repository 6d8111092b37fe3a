package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// The emulated link: the paper's download rate of 85 MB/s (table 1), and a round trip of 2 ms.
const (
	linkDelay = time.Millisecond // one way
	linkRate  = 8 * 85_000_000   // bit/s
	// bufferLimit has room for the inputs of a part, the largest of which is 1 GB, within what one function may have.
	bufferLimit = 8 << 30
	// cacheAge is longer than a part takes.
	cacheAge = 12 * time.Hour
)

// Between nodes of a site: a network of 1 Gbit/s.
const (
	siteDelay = 100 * time.Microsecond // one way
	siteRate  = 1_000_000_000          // bit/s
)

// The sides are a test bed each: nodes that keep nothing, nodes that keep what they have fetched, and nodes that share it. All
// have what the product has by default, but that no part of the disk has to stay free.
const (
	without = "without"
	ours    = "ours"
	sharing = "sharing"
	// otherLinks is without, with other rates of the link.
	otherLinks = "other-links"
)

var sides = map[string]testbed.Config{
	without:    {Name: "hscach0", Subnet: netip.MustParsePrefix("10.231.0.0/16"), Delay: linkDelay, Rate: linkRate},
	ours:       {Name: "hscach1", Subnet: netip.MustParsePrefix("10.233.0.0/16"), Delay: linkDelay, Rate: linkRate, CacheAge: cacheAge},
	otherLinks: {Name: "hscach7", Subnet: netip.MustParsePrefix("10.245.0.0/16"), Delay: linkDelay},
	manyCaches: {Name: "hscach3", Subnet: netip.MustParsePrefix("10.237.0.0/16"), Delay: linkDelay, Rate: linkRate, CacheAge: cacheAge, Share: true},
	slowNodes:  {Name: "hscach4", Subnet: netip.MustParsePrefix("10.239.0.0/16"), Delay: linkDelay, Rate: linkRate, CacheAge: cacheAge, Share: true},
	flowsPlain: {Name: "hscach5", Subnet: netip.MustParsePrefix("10.241.0.0/16"), Delay: linkDelay, Rate: linkRate},
	flowsKept:  {Name: "hscach6", Subnet: netip.MustParsePrefix("10.243.0.0/16"), Delay: linkDelay, Rate: linkRate, CacheAge: cacheAge, Share: true},
	sharing:    {Name: "hscach2", Subnet: netip.MustParsePrefix("10.235.0.0/16"), Delay: siteDelay, Rate: siteRate, CacheAge: cacheAge, Share: true},
}

// bed returns the test bed of a side, which it opens the first time.
func (b *bench) bed(ctx context.Context, side string) (*testbed.Bed, error) {
	if bed := b.beds[side]; bed != nil {
		return bed, nil
	}
	bed, err := b.openBed(ctx, side)
	if err != nil {
		return nil, err
	}
	return bed, bed.ImportImage(ctx, testbed.Workflow)
}

// openBed opens the test bed of a side, without any image.
func (b *bench) openBed(ctx context.Context, side string) (*testbed.Bed, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces and containers need root")
	}
	c := sides[side]
	c.BinDir, c.WorkDir, c.BufferLimit = b.Bin, filepath.Join(b.Out, "cache", side), bufferLimit
	c.Progress = func(step string) { result.Progress(side + ": " + step) }
	if err := os.MkdirAll(c.WorkDir, 0o755); err != nil {
		return nil, err
	}
	bed, err := testbed.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	b.beds[side] = bed
	return bed, nil
}

// close ends the test beds.
func (b *bench) close() error {
	var errs []error
	for side, bed := range b.beds {
		result.Progress("removing everything of " + side)
		errs = append(errs, bed.Close())
	}
	return errors.Join(errs...)
}

// hot is a function that stays, with an input of a store.
func hot(name, node, store string) testbed.Function {
	return testbed.Function{Name: name, Image: testbed.Workflow, Node: node, Annotations: map[string]string{
		"headstart.dev/scale-to-zero": "1h", "headstart.dev/input": testbed.Input, "headstart.dev/store": store, "headstart.dev/input-limit": "2Gi"}}
}

// turns returns the columns in the order of a round: each is first in turn.
func turns[T any](columns []T, round int) []T {
	at := round % len(columns)
	return slices.Concat(columns[at:], columns[:at])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// medianOf at least one value, the upper one of two.
func medianOf(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// ratios are those of pairs.
func ratios(over, under []float64) []float64 {
	all := make([]float64, len(over))
	for i := range over {
		all[i] = over[i] / under[i]
	}
	return all
}
