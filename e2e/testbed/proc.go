package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Growth returns by how many bytes the process's resident memory grew at most while fn
// ran: its peak (proc(5), VmHWM), which is reset before, less what it had.
func Growth(pid int, fn func() error) (int64, error) {
	before, err := Memory(pid, "VmRSS")
	if err != nil {
		return 0, err
	}
	// 5 resets the peak (proc(5), clear_refs).
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600); err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	peak, err := Memory(pid, "VmHWM")
	return peak - before, err
}

// Memory is a field of a process's memory in bytes, as proc(5) calls it: VmRSS, VmHWM.
func Memory(pid int, field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// StateDir is where a node's daemon keeps its state.
func (b *Bed) StateDir(node string) string {
	return filepath.Join(b.c.WorkDir, "state", "nodes", node)
}

// LogDir holds the processes' logs.
func (b *Bed) LogDir() string { return filepath.Join(b.c.WorkDir, "state", "log") }

// pollInterval is how often something that is awaited is looked at.
const pollInterval = 20 * time.Millisecond

// Poll asks until the answer is yes, ctx ends or limit has passed; the error is then the
// last answer's.
func Poll(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // what is cut off says only that
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		case <-tick.C:
		}
	}
}
