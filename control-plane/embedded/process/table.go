package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Entry is one line of the machine's process table.
type Entry struct{ PID, Parent int }

// Table returns the processes that run now. It leaves out zombies, which hold nothing
// any more, and this process itself, so that no selection can be suicide.
func Table() ([]Entry, error) {
	running, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var all []Entry
	for _, p := range running {
		// One that has just ended has no status.
		stat, err := p.Stat()
		if err == nil && p.PID != os.Getpid() && !strings.ContainsAny(stat.State, "ZXx") {
			all = append(all, Entry{PID: p.PID, Parent: stat.PPID})
		}
	}
	return all, nil
}

// pollInterval bounds how late Kill notices that its context has ended.
const pollInterval = 100 * time.Millisecond

// Kill sends SIGKILL to the processes that find selects from the process table, waits
// until they are gone, and repeats until find selects none: what they forked in the
// meantime goes too. It fails if ctx ends before.
func Kill(ctx context.Context, find func([]Entry) []int) error {
	for {
		victims, err := selected(find)
		if err != nil || len(victims) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("killing processes, %v remain: %w", victims, err)
		}
		if err := killOnce(ctx, victims, find); err != nil {
			return err
		}
	}
}

func selected(find func([]Entry) []int) ([]int, error) {
	table, err := Table()
	if err != nil {
		return nil, err
	}
	return find(table), nil
}

// killOnce holds each victim by a descriptor, asks find again, and kills those that it
// still selects. So a number that went to another process in between cannot be hit:
// the descriptor's own process was the one selected, or is dead.
func killOnce(ctx context.Context, victims []int, find func([]Entry) []int) error {
	var held []unix.PollFd
	defer func() {
		for _, h := range held {
			unix.Close(int(h.Fd))
		}
	}()
	pids := make(map[int]int, len(victims)) // by descriptor
	for _, pid := range victims {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("holding process %d: %w", pid, err)
		}
		held = append(held, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		pids[fd] = pid
	}
	still, err := selected(find)
	if err != nil {
		return err
	}
	var doomed []unix.PollFd
	for _, h := range held {
		pid := pids[int(h.Fd)]
		if !slices.Contains(still, pid) {
			continue
		}
		err := unix.PidfdSendSignal(int(h.Fd), unix.SIGKILL, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
		doomed = append(doomed, h)
	}
	for len(doomed) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("killing processes, %d do not die: %w", len(doomed), err)
		}
		_, err := unix.Poll(doomed, int(pollInterval.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for killed processes: %w", err)
		}
		// A pid descriptor is readable when its process has ended (pidfd_open(2)).
		doomed = slices.DeleteFunc(doomed, func(p unix.PollFd) bool { return p.Revents != 0 })
	}
	return nil
}
