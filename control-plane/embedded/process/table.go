package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is one line of the machine's process table.
type Entry struct{ PID, Parent int }

// Table returns the processes that run now. It leaves out zombies, which hold nothing
// any more, and this process itself, so that no selection can be suicide.
func Table() ([]Entry, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var all []Entry
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if parent, alive := parseStat(stat); alive {
			all = append(all, Entry{PID: pid, Parent: parent})
		}
	}
	return all, nil
}

// parseStat reads state and parent from /proc/<pid>/stat (proc(5)). The second field,
// the name, is what the program likes, closing parentheses and newlines included.
func parseStat(stat []byte) (parent int, alive bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 || len(fields[0]) != 1 || bytes.ContainsAny(fields[0], "ZXx") {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil && parent >= 0
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
