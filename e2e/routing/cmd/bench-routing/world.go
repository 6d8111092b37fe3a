package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	edge = "edge"
	// within is the round trip between the cloud's nodes, as in a data center.
	within = 500 * time.Microsecond
	// warm is how long users come before their requests count: connections are made, and
	// whoever measures has measured.
	warm = 10 * time.Second
	// giveUp is when a connection whose user has long gone is closed: later than any queue
	// takes. Closing it when the user goes would have the machine make connections instead of
	// requests where the most users are.
	giveUp = 10 * time.Second
	// closeTimeout bounds the end of a variant, idleTimeout that of what its users left.
	closeTimeout, idleTimeout = 30 * time.Second, time.Minute
	// hurry is by how much less what is left takes when nobody waits for it.
	hurry = 0.001
	// idShift leaves room for the requests of one load below the numbers of loads.
	idShift = 32
)

// nodes are the paper's: the edge has less. What one worker does, 250 requests per second, is
// enough for half of the paper's users there, and less than the third that round robin sends.
var nodes = []bed.Spec{
	{Name: edge, Region: "edge", Workers: 1},
	{Name: "cloud-1", Region: "cloud", Workers: 7},
	{Name: "cloud-2", Region: "cloud", Workers: 7},
}

// bench is what the parts share.
type bench struct {
	options
	compared []gateways.Variant
	users    []int
	paths    []bed.Path
}

// open makes the bed with a path between edge and cloud.
func (b *bench) open(ctx context.Context, path bed.Path) (*bed.Bed, error) {
	progress(fmt.Sprintf("nodes and links, %v +- %v", path.RTT, path.Jitter))
	return bed.Open(ctx, bed.Config{Name: "hsroute", BinDir: b.Bin, WorkDir: filepath.Join(b.Out, "routing"),
		Subnet: netip.MustParsePrefix("10.225.0.0/16"), Nodes: nodes, Seed: b.Seed, Path: func(x, y bed.Spec) bed.Path {
			if x.Region == y.Region {
				return bed.Path{RTT: within}
			}
			return path
		}})
}

// at does something on a bed with a path, which ends with it.
func (b *bench) at(ctx context.Context, path bed.Path, do func(*bed.Bed) error) error {
	world, err := b.open(ctx, path)
	if err != nil {
		return err
	}
	return errors.Join(do(world), world.Close())
}

// with does something while a variant's gateways are there, and leaves the functions idle.
func with(ctx context.Context, world *bed.Bed, v gateways.Variant, do func(*gateways.Set) error) error {
	set, err := v.Open(ctx, world)
	if err != nil {
		return fmt.Errorf("%s: %w", v.Name(), err)
	}
	err = do(set)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, set.Close(end), idle(ctx, world))
}

// idle has the functions get rid of what users that have gone left in their queues.
func idle(ctx context.Context, world *bed.Bed) error {
	for _, n := range world.Nodes {
		if err := world.Slow(ctx, n, hurry); err != nil {
			return err
		}
		err := testbed.Poll(ctx, idleTimeout, func(ctx context.Context) error {
			s, err := world.State(ctx, n)
			if err == nil && s.InFlight > 0 {
				err = fmt.Errorf("node %s still has %d requests", n.Name, s.InFlight)
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := world.Slow(ctx, n, 1); err != nil {
			return err
		}
	}
	return nil
}

// port is the local one of an error's connection, which is another each time.
var port = regexp.MustCompile(`:[0-9]+->`)

// crowd is users on both sides: those of a region come to its nodes' gateways evenly.
type crowd struct {
	users    int
	duration time.Duration // after warm
	// number tells its requests from those of others; with the seed it says when they come.
	number uint64
	seed   uint64
}

// run sends the users' requests, and returns what became of those that count, by the time at
// which they were sent.
func (c crowd) run(ctx context.Context, world *bed.Bed, set *gateways.Set) ([]routing.Sample, error) {
	inRegion := map[string]int{}
	for _, n := range world.Nodes {
		inRegion[n.Region]++
	}
	type outcome struct {
		node    string
		answers []load.Answer
		err     error
	}
	outcomes := make(chan outcome)
	for i, n := range world.Nodes {
		id := c.number*uint64(len(world.Nodes)) + uint64(i)
		p := load.Poisson{Address: set.Address(n), Host: gateways.Host, By: "X-Worker",
			Path: func(k int) string { return fmt.Sprintf("/?n=%d", id<<idShift+uint64(k)) },
			Rate: float64(c.users) * routing.UserRate / float64(inRegion[n.Region]), Seed: c.seed + id,
			Duration: warm + c.duration, Timeout: giveUp}
		go func() {
			answers, err := p.Run(ctx)
			outcomes <- outcome{n.Name, answers, err}
		}()
	}
	var samples []routing.Sample
	var errs []error
	reasons := map[string]int{}
	for range world.Nodes {
		o := <-outcomes
		errs = append(errs, o.err)
		for _, a := range o.answers {
			if a.Due < warm {
				continue
			}
			if a.Lost != "" {
				reasons[o.node+": "+port.ReplaceAllString(a.Lost, "->")]++
			}
			samples = append(samples, routing.Sample{Source: o.node, By: a.By, Sent: a.Due - warm, Took: a.Took, Late: a.Late, Lost: a.Lost != ""})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		progress(fmt.Sprintf("%d lost at %s", reasons[reason], reason))
	}
	slices.SortFunc(samples, func(a, b routing.Sample) int { return int(a.Sent - b.Sent) })
	return samples, errors.Join(errs...)
}
