package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// settleTimeout is many times what uploads behind take after a workflow.
const settleTimeout = 2 * time.Minute

// chains measures the paper's workflows with S3 on the node. The functions are hot, and the data is cold: no node has
// seen any object of a workflow before.
func (b *bench) chains(ctx context.Context, part *cache.Part) error {
	plain, kept, end, err := b.flowFleets(ctx)
	if err != nil {
		return err
	}
	seconds, err := b.readyFlows(ctx, plain, kept)
	if err != nil {
		return err
	}
	err = errors.Join(applyFlows(ctx, plain, "", flowNodes, true, ""),
		applyFlows(ctx, kept, "", flowNodes, true, testbed.Store))
	if err != nil {
		return err
	}
	copies, endCopies, err := b.copier(ctx, plain, flowNodes)
	if err != nil {
		return err
	}
	fresh := func(ctx context.Context, source, prefix string) error {
		return plain.S3.Copy(ctx, source, prefix+source)
	}
	ways := []way{{
		name: cache.FlowWithout, do: placed{plain, flowNodes, testbed.Bucket}.do, begin: fresh,
		end: func(ctx context.Context, prefix string) error { return plain.S3.Remove(ctx, testbed.Bucket, prefix) },
	}, {
		name: cache.FlowCopying, do: copies.do, begin: fresh,
		end: func(ctx context.Context, prefix string) error {
			return errors.Join(copies.drop(prefix), plain.S3.Remove(ctx, testbed.Bucket, prefix))
		},
	}, {
		name: cache.FlowS3, do: placed{kept, flowNodes, testbed.Interim}.do,
		begin: func(ctx context.Context, source, prefix string) error {
			return errors.Join(oneSite(ctx, kept), kept.S3.Copy(ctx, source, prefix+source))
		},
		end: func(ctx context.Context, prefix string) error { return forget(ctx, kept, prefix) },
	}}
	for _, nodes := range []int{1, 2} {
		for _, f := range flowsOn(nodes, seconds) {
			took, err := b.flow(ctx, f, nodes, ways)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			b.addFlow(part, f, nodes, ways, took)
			addChain(part, f, nodes, took)
		}
	}
	part.Notes = append(part.Notes,
		"functions are hot and data is cold; a step with several jobs has the mean of them",
		"the bound is what source and result take without; between is all the rest of what is moved")
	return errors.Join(endCopies(), end())
}

// forget removes all objects of a workflow everywhere. It first waits until the store has what was written behind:
// these uploads must not slow down the next workflow.
func forget(ctx context.Context, bed *testbed.Bed, prefix string) error {
	err := testbed.Poll(ctx, settleTimeout, func(ctx context.Context) error {
		for _, n := range flowNodes {
			left, err := bed.Metric(ctx, n, "headstart_s3_pending_writes")
			if err == nil && left > 0 {
				err = fmt.Errorf("%s has %.0f objects that the store does not have", n, left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, bucket := range []string{testbed.Bucket, testbed.Interim} {
		q := admin.CacheQuery{Verb: "drop", Namespace: "default", Reference: "s3://" + bucket + "/" + prefix}
		_, failed := bed.Client().Cache(ctx, q)
		err = errors.Join(err, failed, bed.S3.Remove(ctx, bucket, prefix))
	}
	return err
}

// chain is how long a workflow waited in one round, in ms: for its source and its result, and for what is between
// steps.
type chain struct{ ends, between float64 }

// chainOf adds up the waits of a round.
func chainOf(f flow, took measured, way string, round int) (c chain) {
	for i, s := range f.steps {
		t := took[s.name][way][round]
		for _, wait := range []struct {
			end  bool
			took time.Duration
		}{{i == 0, t.down}, {i == len(f.steps)-1, t.up}} {
			if wait.end {
				c.ends += milliseconds(wait.took)
			} else {
				c.between += milliseconds(wait.took)
			}
		}
	}
	return c
}

// addChain compares a workflow with its bound and with the paper's cache. Ratios are of the same round.
func addChain(part *cache.Part, f flow, nodes int, took measured) {
	ends, between := map[string][]float64{}, map[string][]float64{}
	var moved []float64
	names := []string{cache.FlowWithout, cache.FlowCopying, cache.FlowS3}
	for round := range took[f.steps[0].name][cache.FlowS3] {
		for _, name := range names {
			c := chainOf(f, took, name, round)
			ends[name], between[name] = append(ends[name], c.ends), append(between[name], c.between)
			if name == cache.FlowS3 {
				moved = append(moved, c.ends+c.between)
			}
		}
	}
	for _, row := range []struct {
		name string
		of   map[string][]float64
	}{{"source and result", ends}, {"between", between}} {
		p := cache.Point{Case: f.caseOf(nodes) + ", " + row.name}
		for _, name := range names {
			p.Values = append(p.Values, cache.Value{Name: name, Value: medianOf(row.of[name])})
		}
		part.Points = append(part.Points, p)
	}
	for _, ratio := range []struct {
		name, figure string
		value        float64
	}{
		{"moved, of the bound", cache.ChainVsBound, medianOf(ratios(moved, ends[cache.FlowWithout]))},
		{"between, of copying", cache.ChainLocalVsCopy, medianOf(ratios(between[cache.FlowS3], between[cache.FlowCopying]))},
	} {
		part.Points = append(part.Points, cache.Point{Case: f.caseOf(nodes) + ", " + ratio.name,
			Values: []cache.Value{{Name: cache.FlowS3, Value: ratio.value}}})
		part.Figures[ratio.figure] = max(part.Figures[ratio.figure], ratio.value)
	}
}
