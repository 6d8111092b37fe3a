package processors

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/procfs"
)

// What was a second ago counts for a little, and what was before for next to nothing.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stat, fails := procfs.Stat{CPUTotal: procfs.CPUStat{User: 1000, Idle: 1000}}, error(nil)
		m := &Meter{stat: func() (procfs.Stat, error) {
			mu.Lock()
			defer mu.Unlock()
			return stat, fails
		}}
		if err := m.look(); err != nil || m.Busy() != 0 {
			t.Fatal(err, m.Busy())
		}
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() { m.Watch(ctx) })
		defer watch.Wait()
		defer cancel()
		passes := func(d time.Duration, work func(c *procfs.CPUStat, seconds float64)) {
			for range d / lookEvery {
				mu.Lock()
				work(&stat.CPUTotal, lookEvery.Seconds())
				mu.Unlock()
				time.Sleep(lookEvery) // the bubble's time
				synctest.Wait()
			}
		}
		// Of two processors one is at work, or both, for the kernel and for another machine, or none, or for what gives way.
		for _, c := range []struct {
			what string
			work func(c *procfs.CPUStat, seconds float64)
			part float64
		}{
			{"one", func(c *procfs.CPUStat, s float64) { c.User += s; c.Idle += s }, 0.5},
			{"both", func(c *procfs.CPUStat, s float64) { c.System += s; c.Steal += s }, 1},
			{"none", func(c *procfs.CPUStat, s float64) { c.Iowait += s; c.Idle += s / 2; c.Nice += s / 2 }, 0},
		} {
			before := m.Busy()
			passes(2*memory, c.work)
			want := c.part + (before-c.part)/(math.E*math.E)
			if got := m.Busy(); math.Abs(got-want) > 0.001 {
				t.Errorf("%s: %.3f after %.3f, want %.3f", c.what, got, before, want)
			}
			passes(10*time.Second, c.work)
			if got := m.Busy(); math.Abs(got-c.part) > 0.001 {
				t.Errorf("%s: %.3f in the end, want %.3f", c.what, got, c.part)
			}
		}
		passes(time.Second, func(c *procfs.CPUStat, s float64) { c.User += 2 * s })
		before := m.Busy()
		passes(time.Second, func(c *procfs.CPUStat, s float64) { fails = errors.New("it does not say") })
		if got := m.Busy(); before < 0.8 || got != before {
			t.Errorf("it is %.3f after %.3f when the kernel does not say", got, before)
		}
	})
}

// This machine's are somewhere between idle and busy.
func TestThisMachine(t *testing.T) {
	m, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if m.all <= 0 || m.idle <= 0 {
		t.Errorf("%f of %f seconds were idle", m.idle, m.all)
	}
	if busy := m.Busy(); busy < 0 || busy > 1 {
		t.Error(busy)
	}
}
