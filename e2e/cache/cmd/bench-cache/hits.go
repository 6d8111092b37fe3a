package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/objects"
)

const megabyte = 1_000_000

// askedSizes are those of the paper's files, openSizes are from small to large.
var (
	askedSizes = []int64{50 * megabyte, 100 * megabyte, 200 * megabyte}
	openSizes  = []int64{1000, megabyte, 100 * megabyte, 1000 * megabyte}
)

// openTimes is how many requests each repetition has, where each takes some milliseconds.
const openTimes = 10

// column is a way to have an input, by its column of the table.
type column struct {
	name string
	take func(ctx context.Context, o object) (time.Duration, error)
}

// hits compares what it takes to have an object that the node has already with what it takes without.
func (b *bench) hits(ctx context.Context, part *cache.Part) error {
	callers, err := b.callers(ctx)
	if err != nil {
		return err
	}
	if err := b.asked(ctx, part, callers); err != nil {
		return err
	}
	return b.opened(ctx, part, callers[cache.Fresh])
}

// callers are those of functions that stay, by the columns of their inputs. Floor is on the store's own network.
func (b *bench) callers(ctx context.Context) (map[string]caller, error) {
	callers := map[string]caller{
		cache.Without: {node: testbed.Edge, function: "plain", way: objects.WayStore},
		cache.Floor:   {node: testbed.Cloud, function: "floor", way: objects.WayStore},
		cache.Asked:   {node: testbed.Edge, function: "asked", way: objects.WayRevalidated},
		cache.Fresh:   {node: testbed.Edge, function: "fresh", way: objects.WayHit},
	}
	for name, c := range callers {
		side, store := without, testbed.Store
		switch name {
		case cache.Asked:
			side = ours
		case cache.Fresh:
			side, store = ours, testbed.FixedStore
		}
		var err error
		if c.bed, err = b.bed(ctx, side); err != nil {
			return nil, err
		}
		if err := c.bed.Apply(ctx, hot(c.function, c.node, store)); err != nil {
			return nil, err
		}
		callers[name] = c
	}
	return callers, nil
}

// asked measures hits after a question to the store, and beside them all other ways to have the same object.
func (b *bench) asked(ctx context.Context, part *cache.Part, callers map[string]caller) error {
	var columns []column
	for _, name := range []string{cache.Without, cache.Asked, cache.Fresh, cache.Floor} {
		c := callers[name]
		columns = append(columns, column{name, c.moved})
	}
	columns = append(columns, column{cache.Copying, b.copied})
	took := map[string]map[string][]float64{}
	var all []object
	for _, size := range askedSizes {
		o, err := b.make(ctx, fmt.Sprintf("asked/%d", size), size, b.Seed, without, ours)
		if err != nil {
			return err
		}
		for _, c := range callers { // from now on the nodes have it, and the function is ready
			if _, err := c.reads(ctx, o); err != nil {
				return err
			}
		}
		all, took[o.key] = append(all, o), map[string][]float64{}
	}
	for n := range b.Repetitions {
		result.Progress(fmt.Sprintf("hits, round %d of %d", n+1, b.Repetitions))
		for _, o := range all {
			for _, c := range turns(columns, n) {
				d, err := c.take(ctx, o)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, o.key, err)
				}
				took[o.key][c.name] = append(took[o.key][c.name], milliseconds(d))
			}
		}
	}
	for _, o := range all {
		p := cache.Point{Case: prefetch.Label(o.size)}
		for _, c := range columns {
			p.Values = append(p.Values, cache.Value{Name: c.name, Value: medianOf(took[o.key][c.name])})
		}
		left := medianOf(ratios(took[o.key][cache.Asked], took[o.key][cache.Without]))
		p.Values = append(p.Values, cache.Value{Name: cache.Reduction, Value: 100 * (1 - left)},
			cache.Value{Name: cache.CopyingReduction, Value: 100 * (1 - medianOf(ratios(took[o.key][cache.Copying], took[o.key][cache.Without])))})
		if least, ok := part.Figures[cache.NodeHitReduction]; !ok || 1-left < least {
			part.Figures[cache.NodeHitReduction] = 1 - left
		}
		part.Points = append(part.Points, p)
	}
	return nil
}

// copied is a hit in the paper's cache: the hash of the file is computed and compared with what it was (algorithm 2),
// and the file is copied to where the pod has its own (section 3.3).
func (b *bench) copied(_ context.Context, o object) (time.Duration, error) {
	dir := filepath.Join(b.Out, "cache")
	kept, own := filepath.Join(dir, "kept"), filepath.Join(dir, "own")
	defer os.Remove(own)
	defer os.Remove(kept)
	if err := fill(kept, o.size, b.Seed); err != nil {
		return 0, err
	}
	began := time.Now()
	f, err := os.Open(kept)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return 0, err
	}
	if hex.EncodeToString(h.Sum(nil)) != o.digest {
		return 0, errors.New("the copy that is kept is not the object")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	to, err := os.Create(own)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(to, f)
	return time.Since(began), errors.Join(err, to.Close())
}

// fill makes a file of an object.
func fill(name string, size int64, seed uint64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content.Write(f, content.Noise, size, seed), f.Close())
}

// opened measures how soon a request has the name of an object for which the store is not asked.
func (b *bench) opened(ctx context.Context, part *cache.Part, c caller) error {
	var ids [][]string
	var all []object
	for _, size := range openSizes {
		o, err := b.make(ctx, fmt.Sprintf("open/%d", size), size, b.Seed, ours)
		if err != nil {
			return err
		}
		if _, err := c.opens(ctx, o); err != nil {
			return err
		}
		all, ids = append(all, o), append(ids, nil)
	}
	for n := range b.Repetitions * openTimes {
		if n%openTimes == 0 {
			result.Progress(fmt.Sprintf("opening, round %d of %d", n/openTimes+1, b.Repetitions))
		}
		for i, o := range all {
			id, err := c.opens(ctx, o)
			if err != nil {
				return err
			}
			ids[i] = append(ids[i], id)
		}
	}
	for i, o := range all {
		var opened, moved []float64
		for _, id := range ids[i] {
			got, err := c.brought(ctx, id)
			if err != nil {
				return err
			}
			opened, moved = append(opened, 1000*milliseconds(got.Opened)), append(moved, 1000*milliseconds(got.Moved))
		}
		p50 := medianOf(opened)
		part.Figures[cache.HitOpen] = max(part.Figures[cache.HitOpen], p50)
		part.Points = append(part.Points, cache.Point{Case: "open, " + prefetch.Label(o.size), Values: []cache.Value{
			{Name: "to name µs", Value: p50}, {Name: "hit and link µs", Value: medianOf(moved)}}})
	}
	return nil
}
