package tenants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// faultEvery leaves time for hand-overs between faults.
	faultEvery = 8 * time.Second
	// watchEvery is how often the servers are asked for unused sessions.
	watchEvery = 250 * time.Millisecond
)

// daemon is the name of the node's.
const daemon = "headstart-node-" + testbed.Edge

// faults makes one after the other, until ctx ends.
func (r *run) faults(ctx context.Context) error {
	signal := func(s syscall.Signal) func(context.Context) error {
		return func(context.Context) error {
			pid := r.PID(daemon)
			if pid == 0 {
				return nil // the fault before is not over
			}
			return syscall.Kill(pid, s)
		}
	}
	all := []struct {
		name string
		make func(context.Context) error
	}{
		{"the daemon is killed", signal(syscall.SIGKILL)},
		{"the server ends all sessions", func(ctx context.Context) error {
			return r.killed.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where usename like 't__'")
		}},
		{"the daemon is replaced", signal(syscall.SIGTERM)},
		{"the server is restarted", r.killed.Restart},
	}
	for i := 0; ; i++ {
		select {
		case <-time.After(faultEvery):
		case <-ctx.Done():
			return nil
		}
		f := all[i%len(all)]
		r.progress(f.name)
		if err := f.make(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
}

// unusedSessions are those that nobody has asked anything on.
const unusedSessions = `select usename, count(*) from pg_stat_activity
	where usename like 't__' and query = '' group by 1`

// watch looks for more unused sessions than the budget allows, until ctx ends. One that was just handed over is
// nothing yet but unused, and so is one that ends.
func (r *run) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	more := map[string]int{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		rows, err := r.killed.Rows(ctx, unusedSessions)
		if err != nil {
			continue // it is being restarted
		}
		now := map[string]int{}
		for _, row := range rows {
			var n int
			if _, err := fmt.Sscan(row[1], &n); err != nil {
				return err
			}
			if n > unused {
				now[row[0]] = more[row[0]] + 1
			}
			if now[row[0]] == overTimes {
				r.verdict.over(fmt.Sprintf("%s had %d unused sessions", row[0], n))
			}
		}
		more = now
	}
}

// overTimes one after the other are not what passes.
const overTimes = 4

const (
	// leakSessions are each tenant's between two looks at a daemon that is left alone.
	leakSessions = 20
	// dealTimeout is longer than a control plane waits that has just begun.
	dealTimeout = time.Minute
	// settleTimeout is longer than what ends takes to be over.
	settleTimeout = 30 * time.Second
)

// leaks counts the descriptors that a daemon has more after many sessions than before, beside those of connections that
// wait. It has the first sessions before, which bring it what it keeps.
func (r *run) leaks(ctx context.Context) (int, error) {
	if err := r.tenants(ctx, "warm", warmSessions); err != nil {
		return 0, err
	}
	before, err := r.descriptors(ctx)
	if err != nil {
		return 0, err
	}
	pid := r.PID(daemon)
	if err := r.tenants(ctx, "again", leakSessions); err != nil {
		return 0, err
	}
	if now := r.PID(daemon); now != pid {
		return 0, fmt.Errorf("the daemon %d has ended by itself", pid)
	}
	leaks := 0
	err = testbed.Poll(ctx, settleTimeout, func(ctx context.Context) error {
		after, err := r.descriptors(ctx)
		if leaks = after - before; err == nil && leaks > 0 {
			err = errLeaks
		}
		return err
	})
	if errors.Is(err, errLeaks) {
		err = nil // they are counted
	}
	return max(leaks, 0), err
}

var errLeaks = errors.New("the daemon has more descriptors than before")

// descriptors counts those of the daemon without the connections that wait.
func (r *run) descriptors(ctx context.Context) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID(daemon)))
	if err != nil {
		return 0, err
	}
	held, err := r.held(ctx)
	return len(all) - held, err
}

// held is how many unused connections the daemon has.
func (r *run) held(ctx context.Context) (n int, err error) {
	for t := range tenants {
		for _, d := range []testbed.Distance{killed, kept} {
			held, err := r.Metric(ctx, testbed.Edge,
				fmt.Sprintf("headstart_connections_unused{destination=\"%s-%s\"}", d.Name, nameOf(t)))
			if err != nil {
				return 0, err
			}
			n += int(held)
		}
	}
	return n, nil
}
