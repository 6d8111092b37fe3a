package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// originBytes is what all caches ask for at once.
	originBytes = 20 * megabyte
	// fleetRate is the rate of each node's link, where an object goes to all.
	fleetRate = 100_000_000 // bit/s
	// fleetTimeout is longer than many nodes take to measure their ways to each other.
	fleetTimeout = 10 * time.Minute
)

// fleets are the parts' own: many nodes, which would disturb other parts.
const (
	manyCaches = "caches"
	slowNodes  = "nodes"
	flowsPlain = "flows-without"
	flowsKept  = "flows-ours"
)

// fleet opens the test bed of a part that has many nodes, and waits until all are of one site. end ends it.
func (b *bench) fleet(ctx context.Context, side string, nodes int, rate int64) (
	bed *testbed.Bed, end func() error, err error,
) {
	c := sides[side]
	c.NodeRate, c.Nodes = rate, nil
	for i := range nodes {
		c.Nodes = append(c.Nodes, fmt.Sprintf("n%02d", i+1))
	}
	sides[side] = c
	if bed, err = b.openBed(ctx, side); err != nil {
		return nil, nil, err
	}
	if c.Share {
		if err := oneSite(ctx, bed); err != nil {
			return nil, nil, err
		}
	}
	return bed, func() error {
		delete(b.beds, side)
		return bed.Close()
	}, nil
}

// oneSite waits until all nodes are of one site. They leave it while their links are so full that round trips take
// longer than within a site, and come back later.
func oneSite(ctx context.Context, bed *testbed.Bed) error {
	nodes := bed.Platform.Nodes()
	result.Progress(fmt.Sprintf("waiting for %d nodes to be one site", len(nodes)))
	for _, n := range nodes {
		err := testbed.Poll(ctx, fleetTimeout, func(ctx context.Context) error {
			members, err := bed.Metric(ctx, n.Name, "headstart_site_members")
			if err == nil && int(members) != len(nodes) {
				err = fmt.Errorf("the site of %s has %.0f members", n.Name, members)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// warm has all nodes, or one, fetch an object at the same time, as `headstart warm` does.
func warm(ctx context.Context, bed *testbed.Bed, o object, node string) (took time.Duration, err error) {
	q := admin.CacheQuery{Verb: "warm", Namespace: "default", Store: testbed.Store, Reference: o.reference(), Node: node}
	began := time.Now()
	nodes, err := bed.Client().Cache(ctx, q)
	took = time.Since(began)
	for _, n := range nodes {
		if n.Problem != "" && err == nil {
			err = fmt.Errorf("%s: %s", n.Node, n.Problem)
		}
	}
	if err != nil {
		return 0, err
	}
	return took, nil
}

func (o object) reference() string { return "s3://" + testbed.Bucket + "/" + o.key }

// drop sees that nodes have an object, by its digests, and has all of them forget it.
func drop(ctx context.Context, bed *testbed.Bed, o object, node string) error {
	q := admin.CacheQuery{Verb: "verify", Namespace: "default", Reference: o.reference(), Node: node}
	nodes, err := bed.Client().Cache(ctx, q)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if len(n.Entries) != 1 || n.Entries[0].Bytes != o.size || n.Entries[0].Problem != "" || n.Problem != "" {
			return fmt.Errorf("%s has not the object, but %+v", n.Node, n)
		}
	}
	q.Verb, q.Node = "drop", ""
	_, err = bed.Client().Cache(ctx, q)
	return err
}

// sumOf adds up a metric of all nodes. One that a daemon does not have yet is 0.
func sumOf(ctx context.Context, bed *testbed.Bed, metrics ...string) (sum float64) {
	for _, n := range bed.Platform.Nodes() {
		for _, m := range metrics {
			if v, err := bed.Metric(ctx, n.Name, m); err == nil {
				sum += v
			}
		}
	}
	return sum
}

// What counts fetches that went to the store, for the whole object or for what a peer did not send.
const (
	fromStore = `headstart_peer_fetches_total{from="store"}`
	fromBoth  = `headstart_peer_fetches_total{from="both"}`
)

// origin counts how many of many caches ask the store for an object that all need at once.
func (b *bench) origin(ctx context.Context, part *cache.Part) error {
	bed, end, err := b.fleet(ctx, manyCaches, b.caches, siteRate)
	if err != nil {
		return err
	}
	o, err := b.make(ctx, "origin", originBytes, b.Seed, manyCaches)
	if err != nil {
		return err
	}
	for n := range b.Repetitions {
		result.Progress(fmt.Sprintf("%d caches at once, %d of %d", b.caches, n+1, b.Repetitions))
		again := object{key: fmt.Sprintf("origin.%d", n), size: o.size}
		if err := errors.Join(oneSite(ctx, bed), bed.S3.Copy(ctx, o.key, again.key)); err != nil {
			return err
		}
		before := sumOf(ctx, bed, fromStore, fromBoth)
		bytes, err := bed.Downloaded()
		if err != nil {
			return err
		}
		d, err := warm(ctx, bed, again, "")
		if err != nil {
			return err
		}
		after, err := bed.Downloaded()
		if err != nil {
			return err
		}
		fetches := sumOf(ctx, bed, fromStore, fromBoth) - before
		part.Points = append(part.Points, cache.Point{
			Case: fmt.Sprintf("%d caches, %s", b.caches, prefetch.Label(o.size)),
			Values: []cache.Value{{Name: "fetches from the store", Value: fetches},
				{Name: "bytes from the store, in objects", Value: float64(after-bytes) / float64(o.size)},
				{Name: "until all have it ms", Value: milliseconds(d)}}})
		part.Figures[cache.OriginFetches] = max(part.Figures[cache.OriginFetches], fetches)
		if err := drop(ctx, bed, again, ""); err != nil {
			return err
		}
	}
	return end()
}

// broadcast compares how long an object takes to all nodes with how long it takes over the link of one, without any
// header.
func (b *bench) broadcast(ctx context.Context, part *cache.Part) error {
	bed, end, err := b.fleet(ctx, slowNodes, b.nodes, fleetRate)
	if err != nil {
		return err
	}
	o, err := b.make(ctx, "all", b.broadcastBytes, b.Seed, slowNodes)
	if err != nil {
		return err
	}
	transfer := 1000 * 8 * float64(o.size) / fleetRate // ms
	var one, all, cpu []float64
	for n := range b.Repetitions {
		result.Progress(fmt.Sprintf("to one and to all of %d nodes, %d of %d", b.nodes, n+1, b.Repetitions))
		for _, c := range turns([]struct {
			node string
			took *[]float64
		}{{bed.Platform.Nodes()[0].Name, &one}, {"", &all}}, n) {
			again := object{key: fmt.Sprintf("all.%d.%s", n, c.node), size: o.size}
			if err := errors.Join(oneSite(ctx, bed), bed.S3.Copy(ctx, o.key, again.key)); err != nil {
				return err
			}
			busy, passed, err := cpuTime()
			if err != nil {
				return err
			}
			d, err := warm(ctx, bed, again, c.node)
			if err != nil {
				return err
			}
			busyThen, passedThen, err := cpuTime()
			if err != nil {
				return err
			}
			if *c.took = append(*c.took, milliseconds(d)); c.node == "" {
				cpu = append(cpu, 100*(busyThen-busy)/(passedThen-passed))
			}
			if err := drop(ctx, bed, again, c.node); err != nil {
				return err
			}
		}
	}
	ratio := medianOf(all) / transfer
	part.Figures[cache.BroadcastRatio] = ratio
	part.Points = []cache.Point{{Case: fmt.Sprintf("%s to %d nodes", prefetch.Label(o.size), b.nodes),
		Values: []cache.Value{{Name: "one transfer ms", Value: transfer}, {Name: "to one node ms", Value: medianOf(one)},
			{Name: "to all ms", Value: medianOf(all)}, {Name: "ratio", Value: ratio},
			{Name: "to all, of to one", Value: medianOf(ratios(all, one))}, {Name: "CPU %", Value: medianOf(cpu)}}}}
	part.Notes = append(part.Notes,
		"CPU is the share of this machine's cores that was busy while the object went to all nodes")
	return end()
}

// cpuTime is how long this machine's cores have been busy, and how long in all, in ticks (proc_stat(5)).
func cpuTime() (busy, all float64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	for i, field := range strings.Fields(first)[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, 0, err
		}
		all += ticks
		if i != 3 && i != 4 { // idle, and waiting for a disk
			busy += ticks
		}
	}
	return busy, all, nil
}
