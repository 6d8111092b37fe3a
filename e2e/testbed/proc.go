package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ResidentBytes is the process's resident memory (proc(5), VmRSS).
func ResidentBytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d has no resident memory", pid)
}

// StateDir is where a node's daemon keeps its state.
func (b *Bed) StateDir(node string) string {
	return filepath.Join(b.c.WorkDir, "state", "nodes", node)
}

// LogDir holds the processes' logs.
func (b *Bed) LogDir() string { return filepath.Join(b.c.WorkDir, "state", "log") }
