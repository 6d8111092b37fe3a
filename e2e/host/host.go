// Package host tells what machine a benchmark ran on.
package host

import (
	"os"
	"runtime"
	"strings"
)

// Describe returns what figures depend on. What the machine does not tell is left out.
func Describe() map[string]any {
	m := map[string]any{"cpus": runtime.NumCPU(), "os": runtime.GOOS, "arch": runtime.GOARCH, "go": runtime.Version()}
	for name, from := range map[string]struct{ path, prefix string }{
		"kernel": {"/proc/sys/kernel/osrelease", ""}, "cpu": {"/proc/cpuinfo", "model name"}, "memory": {"/proc/meminfo", "MemTotal"},
		// What else runs there at the beginning, by its last minutes.
		"load": {"/proc/loadavg", ""},
	} {
		b, err := os.ReadFile(from.path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, from.prefix); ok {
				m[name] = strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
				break
			}
		}
	}
	return m
}
