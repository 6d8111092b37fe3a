package process_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// descendants selects everything below one process.
func descendants(root int) func([]process.Entry) []int {
	return func(table []process.Entry) (found []int) {
		below := map[int]bool{root: true}
		for grew := true; grew; {
			grew = false
			for _, e := range table {
				if below[e.Parent] && !below[e.PID] {
					below[e.PID], grew = true, true
					found = append(found, e.PID)
				}
			}
		}
		return found
	}
}

func TestKillTakesAllThatIsSelected(t *testing.T) {
	log := newLines(t)
	cmd := exec.Command("/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo go; wait; exec sleep 1000`)
	cmd.Stdout = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log.next(t)
	find := descendants(cmd.Process.Pid)
	if err := process.Kill(context10(t), find); err != nil {
		t.Error(err)
	}
	if err := process.Kill(context10(t), func(table []process.Entry) []int {
		for _, e := range table {
			if e.PID == cmd.Process.Pid {
				return []int{e.PID}
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the root ended by itself")
	}
}

func TestKillSparesWhatIsNoLongerSelected(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	err := process.Kill(context10(t), func([]process.Entry) []int {
		asked++
		if asked == 1 {
			return []int{cmd.Process.Pid}
		}
		return nil // as if its number had gone to another
	})
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("it was killed: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func TestKillEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A number beyond any kernel's pid_max: never there, always selected.
	err := process.Kill(ctx, func([]process.Entry) []int { return []int{1 << 30} })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTableLeavesOutZombiesAndItself(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{cmd.Process.Pid, os.Getpid()} {
		if alive(t, pid) {
			t.Errorf("%d is listed", pid)
		}
	}
	if !alive(t, os.Getppid()) {
		t.Error("the parent is not listed")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
