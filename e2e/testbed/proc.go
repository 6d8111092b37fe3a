package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Growth returns by how many bytes the process's resident memory grew at most while fn
// ran: its peak (proc(5), VmHWM), which is reset before, less what it had.
func Growth(pid int, fn func() error) (int64, error) {
	before, err := memory(pid, "VmRSS")
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
	peak, err := memory(pid, "VmHWM")
	return peak - before, err
}

func memory(pid int, field string) (int64, error) {
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
