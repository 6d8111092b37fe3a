package tenants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
			return r.killed.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where usename like 'u__'")
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
	where usename like 'u__' and query = '' group by 1`

// watch looks on all servers for more unused sessions of a destination than the budget allows, until ctx ends. One that
// was just handed over is nothing yet but unused, and so is one that ends.
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
		now := map[string]int{}
		for _, s := range r.Servers {
			rows, err := s.Postgres.Rows(ctx, unusedSessions)
			if err != nil {
				continue // it is being restarted
			}
			for _, row := range rows {
				var n, tenant int
				if _, err := fmt.Sscanf(row[0]+" "+row[1], "u%d %d", &tenant, &n); err != nil {
					return err
				}
				at := s.Name + "-" + row[0]
				r.fullest[at] = max(r.fullest[at], n)
				if n > allowed(tenant) {
					now[at] = more[at] + 1
				}
				if now[at] == overTimes {
					r.verdict.over(fmt.Sprintf("%s had %d unused sessions", at, n))
				}
			}
		}
		more = now
		r.looks.Add(1)
	}
}

// overTimes one after the other are not what passes.
const overTimes = 8

const (
	// leakSessions are each tenant's between two looks at a daemon that is left alone.
	leakSessions = 20
	// shimsDiffer is how many descriptors all shims together have more or less at times. If they kept one of each session,
	// each shim would have 15 more.
	shimsDiffer = tenants / 2
	// dealTimeout is longer than a control plane waits that has just begun.
	dealTimeout = time.Minute
	// settleTimeout is longer than what ends takes to be over.
	settleTimeout = 30 * time.Second
)

// leaks counts the descriptors that the daemon has more after many sessions than before, beside those of connections
// that wait; and those that the shims of many sessions have more than the shims of few.
func (r *run) leaks(ctx context.Context) (int, error) {
	shimsBefore, err := r.tenants(ctx, "before", warmSessions) // which bring the daemon what it keeps
	if err == nil {
		err = r.full(ctx)
	}
	if err != nil {
		return 0, err
	}
	before, err := r.descriptors(ctx)
	if err != nil {
		return 0, err
	}
	pid := r.PID(daemon)
	shims, err := r.tenants(ctx, "again", leakSessions)
	if err != nil {
		return 0, err
	}
	if now := r.PID(daemon); now != pid {
		return 0, fmt.Errorf("the daemon %d has ended by itself", pid)
	}
	leaks, quiet := 0, r.looks.Load()+overTimes // while nobody asks, one connection too many stays
	err = testbed.Poll(ctx, settleTimeout, func(ctx context.Context) error {
		after, err := r.descriptors(ctx)
		if leaks = max(after-before, 0); err == nil && (leaks > 0 || r.looks.Load() < quiet) {
			err = errLeaks
		}
		return err
	})
	if errors.Is(err, errLeaks) {
		err = nil // they are counted
	}
	r.progress(fmt.Sprintf("shims have %d descriptors after %d sessions each, and %d after %d", shims, leakSessions,
		shimsBefore, warmSessions))
	if more := shims - shimsBefore; more > shimsDiffer {
		leaks += more
	}
	return leaks, err
}

var errLeaks = errors.New("the daemon has more descriptors than before")

// descriptors counts those of the daemon without the connections that wait.
func (r *run) descriptors(ctx context.Context) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID(daemon)))
	if err != nil {
		return 0, err
	}
	held, err := r.held(ctx)
	n := len(all)
	for _, waiting := range held {
		n -= waiting
	}
	return n, err
}

// ofShims counts the descriptors of all tenants' shims as soon as their number stays. Pipes do not count: Go keeps some
// for splice(2).
func (r *run) ofShims(ctx context.Context) (n int, err error) {
	err = testbed.Poll(ctx, settleTimeout, func(context.Context) error {
		links, shims := 0, 0
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			line, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(line, []byte("containerd-shim-headstart-v2\x00")) ||
				!bytes.Contains(line, []byte(r.RunDir()+"/")) {
				continue
			}
			shims++
			all, _ := filepath.Glob(filepath.Dir(path) + "/fd/*") // the pattern is right
			for _, fd := range all {
				if to, err := os.Readlink(fd); err == nil && !strings.HasPrefix(to, "pipe:") { // else it is closed
					links++
				}
			}
		}
		if before := n; err == nil && (links != before || shims != tenants) {
			n, err = links, fmt.Errorf("%d shims have %d descriptors, %d before", shims, links, before)
		}
		return err
	})
	return n, err
}

// held is how many unused connections the daemon has, by destination.
func (r *run) held(ctx context.Context) (map[string]int, error) {
	all := map[string]int{}
	for t := 0; t < tenants; t += sharers {
		for _, s := range r.Servers {
			at := s.Name + "-" + userOf(t)
			n, err := r.Metric(ctx, testbed.Edge, fmt.Sprintf("headstart_connections_unused{destination=%q}", at))
			if err != nil {
				return nil, err
			}
			all[at] = int(n)
		}
	}
	return all, nil
}
