package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// idleFunctions are opted in and not used.
	idleFunctions = 100
	// idleTime is how long the CPU is looked at; settleTime goes before, for what comes
	// with a hundred new functions.
	idleTime, settleTime = 30 * time.Second, 15 * time.Second
	// clockTicks per second of /proc/PID/stat on Linux (USER_HZ).
	clockTicks = 100
)

// idle measures what Headstart costs while nothing happens, with a hundred functions.
func (b *bench) idle(ctx context.Context) error {
	progress(fmt.Sprintf("%d functions, and nothing to do", idleFunctions))
	var functions []world.Function
	for n := range idleFunctions {
		functions = append(functions, world.Function{Name: fmt.Sprintf("idle-%d", n), Part: "idle", Annotations: world.WithInput("30s")})
	}
	if err := b.Deploy(ctx, functions...); err != nil {
		return err
	}
	if err := testbed.Poll(ctx, time.Minute, b.knows(idleFunctions)); err != nil {
		return err
	}
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	for program, name := range map[string]string{"headstart-node": "daemon", "headstart-controlplane": "controlplane"} {
		pids, err := world.Processes(program)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return fmt.Errorf("no %s runs", program)
		}
		rss, cpu, err := cost(ctx, pids)
		if err != nil {
			return err
		}
		b.summary[name+"_rss_mib"], b.summary[name+"_cpu_percent"] = rss, cpu
	}
	return b.Undeploy(ctx, "idle")
}

func (b *bench) knows(functions int) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := b.Admin()
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := client.Status(ctx)
		if err != nil {
			return err
		}
		if len(s.Functions) < functions {
			return fmt.Errorf("the control plane knows %d functions", len(s.Functions))
		}
		return nil
	}
}

// cost returns the largest resident memory of processes in MiB, and the largest share of
// one core in percent.
func cost(ctx context.Context, pids []int) (rss, cpu float64, err error) {
	before := map[int]int64{}
	for _, pid := range pids {
		if before[pid], err = ticks(pid); err != nil {
			return 0, 0, err
		}
	}
	if err := pause(ctx, idleTime); err != nil {
		return 0, 0, err
	}
	for _, pid := range pids {
		after, err := ticks(pid)
		if err != nil {
			return 0, 0, err
		}
		bytes, err := testbed.Memory(pid, "VmRSS")
		if err != nil {
			return 0, 0, err
		}
		rss = max(rss, float64(bytes)/(1<<20))
		cpu = max(cpu, 100*float64(after-before[pid])/clockTicks/idleTime.Seconds())
	}
	return rss, cpu, nil
}

// ticks is the CPU time of a process so far (proc(5): utime and stime).
func ticks(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d has no stat", pid)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return user + system, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
