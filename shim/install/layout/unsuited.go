package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Unsuited is why a node cannot have the runtime, whatever is done there.
type Unsuited struct{ Why string }

// Error says so.
func (u *Unsuited) Error() string { return "this node cannot have the runtime: " + u.Why }

// crio is where CRI-O listens, as on OpenShift.
const crio = "/run/crio/crio.sock"

// immutable are operating systems, by the ID of their os-release(5), whose containerd configuration is written by themselves
// and by nobody else.
var immutable = map[string]string{
	"bottlerocket": "Bottlerocket writes containerd's configuration itself",
	"talos":        "Talos writes containerd's configuration itself",
	"cos":          "Container-Optimized OS has /opt read-only, and programs elsewhere are not executed",
}

// Suits returns an Unsuited for a node that cannot have the runtime.
func Suits(v View) error {
	id, err := osID(v)
	if err != nil {
		return err
	}
	if why := immutable[id]; why != "" {
		return &Unsuited{why}
	}
	if !v.Exists(crio) {
		return nil
	}
	for _, p := range places {
		if v.Exists(p.socket) {
			return nil
		}
	}
	return &Unsuited{"its container runtime is CRI-O"}
}

// osID is the operating system's ID, empty if it does not say one.
func osID(v View) (string, error) {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		text, err := v.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		for line := range strings.Lines(string(text)) {
			if id, is := strings.CutPrefix(strings.TrimSpace(line), "ID="); is {
				return strings.Trim(id, `"'`), nil
			}
		}
	}
	return "", nil
}
