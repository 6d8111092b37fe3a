package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// taskDir holds the bundles in the state directory: <namespace>/<id>.
	taskDir = "io.containerd.runtime.v2.task"
	// shimSockets is where every containerd's shims listen, whatever its state
	// directory is (containerd pkg/shim SocketAddress).
	shimSockets = "/run/containerd/s"
	// runcRoot is the runc shim's default (cmd/containerd-shim-runc-v2/process).
	runcRoot = "/run/containerd/runc"
	// maxBundleFile bounds what is read of a bundle; a spec has some 10 KB.
	maxBundleFile = 4 << 20
	// cgroupRetry is how often an emptied cgroup is tried again: the kernel finishes
	// with its last process a moment after that is gone.
	cgroupRetry = 10 * time.Millisecond
)

// bundle is what a task leaves on disk.
type bundle struct {
	dir           string
	namespace, id string
	cgroup        string // "" if there is none that is surely its own
	socket        string // its shim's; "" if there is none
	runc          string // runc's state of it
}

func listBundles(stateDir string) ([]bundle, error) {
	dirs, err := filepath.Glob(filepath.Join(escape(stateDir), taskDir, "*", "*"))
	if err != nil {
		return nil, fmt.Errorf("listing bundles: %w", err)
	}
	var all []bundle
	for _, dir := range dirs {
		b, err := readBundle(dir)
		if err != nil {
			return nil, fmt.Errorf("reading bundle %s: %w", dir, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// escape keeps a directory's own name from being a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// readBundle takes what it finds: a bundle may be half made or half removed.
func readBundle(dir string) (bundle, error) {
	b := bundle{dir: dir, namespace: filepath.Base(filepath.Dir(dir)), id: filepath.Base(dir)}
	spec, err1 := readFile(filepath.Join(dir, "config.json"))
	options, err2 := readFile(filepath.Join(dir, "options.json"))
	address, err3 := readFile(filepath.Join(dir, "address"))
	bootstrap, err4 := readFile(filepath.Join(dir, "bootstrap.json")) // of containerd 2.3 and later
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return bundle{}, err
	}
	b.cgroup = ownCgroup(spec, b.id)
	b.runc = filepath.Join(runcDir(options), b.namespace, b.id)
	b.socket = cmp.Or(shimSocket(string(address)), shimSocket(bootAddress(bootstrap)))
	return b, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBundleFile))
}

// ownCgroup returns the cgroup of an OCI spec if it is surely the container's own: an
// absolute path below the root that ends with its id, as containerd makes it. Whatever
// is in there gets killed.
func ownCgroup(spec []byte, id string) string {
	var s struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	}
	if json.Unmarshal(spec, &s) != nil {
		return "" // half written: its task never started
	}
	p := s.Linux.CgroupsPath
	if !path.IsAbs(p) || path.Clean(p) != p || path.Base(p) != id || path.Dir(p) == "/" {
		return ""
	}
	return p
}

func runcDir(options []byte) string {
	var o struct {
		Root string `json:"root"`
	}
	if json.Unmarshal(options, &o) != nil || !filepath.IsAbs(o.Root) {
		return runcRoot
	}
	return o.Root
}

// shimSocket returns the path in a bundle's address file if it is a shim's.
func shimSocket(address string) string {
	p, isUnix := strings.CutPrefix(strings.TrimSpace(address), "unix://")
	if !isUnix || filepath.Dir(p) != shimSockets || filepath.Clean(p) != p {
		return ""
	}
	return p
}

// bootAddress is what a bundle's bootstrap.json says of its shim.
func bootAddress(bootstrap []byte) string {
	var b struct {
		Address string `json:"address"`
	}
	_ = json.Unmarshal(bootstrap, &b) // half written: its shim never started
	return b.Address
}

// remove deletes all that the bundle names, and last the bundle: until then a next try
// finds the rest.
func (b bundle) remove(ctx context.Context) error {
	if b.cgroup != "" {
		if err := removeCgroup(ctx, b.cgroup); err != nil {
			return err
		}
	}
	if b.socket != "" {
		if err := os.Remove(b.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing shim socket: %w", err)
		}
	}
	if err := os.RemoveAll(b.runc); err != nil {
		return fmt.Errorf("removing runc's state of %s: %w", b.id, err)
	}
	removeEmpty(filepath.Dir(b.runc))
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("removing bundle: %w", err)
	}
	return nil
}

// removeCgroup removes an empty cgroup, with those below it, from every hierarchy.
func removeCgroup(ctx context.Context, cgroup string) error {
	hierarchies, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range hierarchies {
		dir := filepath.Join(root, cgroup)
		if err := RemoveCgroup(ctx, dir); err != nil {
			return fmt.Errorf("removing cgroup: %w", err)
		}
		removeEmpty(filepath.Dir(dir))
	}
	return nil
}

// removeNamespaces removes the directories that containerd, runc and the kernel keep for
// each namespace, also after its last task was deleted in good order. Where others use
// the same namespace, they stay.
func removeNamespaces(stateDir string) error {
	spaces, err := filepath.Glob(filepath.Join(escape(stateDir), taskDir, "*"))
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	hierarchies, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, dir := range spaces {
		name := filepath.Base(dir)
		for _, root := range append(hierarchies, runcRoot) {
			removeEmpty(filepath.Join(root, name))
		}
		removeEmpty(dir)
	}
	return nil
}

// removeEmpty removes a directory that nobody uses, and only then.
func removeEmpty(dir string) { _ = unix.Rmdir(dir) }

func cgroupRoots() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	var roots []string
	for _, m := range mounts {
		roots = append(roots, m.Mountpoint)
	}
	return roots, nil
}

// RemoveCgroup removes a cgroup and those below it, once they are empty: rmdir, children
// first, as a cgroup's files cannot be and need not be removed.
func RemoveCgroup(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := RemoveCgroup(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		timer := time.NewTimer(cgroupRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &os.PathError{Op: "rmdir", Path: dir, Err: errors.Join(err, ctx.Err())}
		}
	}
}
