package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// makeNamespace makes the machine's mount namespace and keeps it by a mount.
func (m *Machine) makeNamespace() error {
	if err := m.makeDirs(); err != nil {
		return err
	}
	return nsthread.Run("", func() error {
		// The directory of a thread must be its own before its namespace can be.
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("making mount namespace: %w", err)
		}
		if err := m.fill(); err != nil {
			return err
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid())
		return nsthread.Run("", func() error { // on a thread that still is where we were
			return mount(own, m.mountNS(), "", unix.MS_BIND, "")
		})
	})
}

// makeDirs makes what this machine has of the other.
func (m *Machine) makeDirs() error {
	for _, dir := range append([]string{m.root(), m.memory(), m.pins()}, m.diskDirs()...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount(m.pins(), m.pins(), "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("", m.pins(), "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return os.WriteFile(m.mountNS(), nil, 0o444)
}

// root is where the machine's root is mounted while it is made.
func (m *Machine) root() string { return filepath.Join(m.c.Dir, "root") }

// memory is where what the machine writes outside of its disks is kept.
func (m *Machine) memory() string { return filepath.Join(m.c.Dir, "memory") }

// disk is where this machine has one of the disks.
func (m *Machine) disk(dir string) string { return filepath.Join(m.c.Dir, "disk", dir) }

// Logs is where this machine has the other's /var/log.
func (m *Machine) Logs() string { return m.disk("/var/log") }

func (m *Machine) diskDirs() []string {
	var all []string
	for _, dir := range disks {
		all = append(all, m.disk(dir))
	}
	return all
}

// fill makes the machine's file system and the thread's namespace consist of it.
func (m *Machine) fill() error {
	// Nothing that is mounted here shall appear outside, or the other way round.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := m.mountRoot(); err != nil {
		return err
	}
	if err := m.populate(); err != nil {
		return err
	}
	if err := m.mountBelow(); err != nil {
		return err
	}
	// pivot_root(2): onto the current directory, and then the old root is on top.
	if err := unix.Chdir(m.root()); err != nil {
		return &os.PathError{Op: "chdir", Path: m.root(), Err: err}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("entering the new root: %w", err)
	}
	// Containers may hand mounts on to the machine and get them from it, as the kubelet
	// expects, and systemd does it.
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// mountRoot lays memory over this machine's root. The upper layer may not be below the lower
// one on the same file system.
func (m *Machine) mountRoot() error {
	if err := mount("tmpfs", m.memory(), "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	upper, work := filepath.Join(m.memory(), "upper"), filepath.Join(m.memory(), "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return mount("overlay", m.root(), "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work)
}

func (m *Machine) populate() error {
	for _, dir := range hidden {
		if err := os.RemoveAll(m.inside(dir)); err != nil {
			return err
		}
	}
	for path, file := range m.c.Files {
		if file.Mode == 0 {
			file.Mode = 0o644
		}
		if err := m.replace(path, func(at string) error { return os.WriteFile(at, []byte(file.Content), file.Mode) }); err != nil {
			return err
		}
	}
	for path, target := range m.c.Links {
		if err := m.replace(path, func(at string) error { return os.Symlink(target, at) }); err != nil {
			return err
		}
	}
	return nil
}

// replace makes a file or link anew, so that a link of this machine's is not followed.
func (m *Machine) replace(path string, create func(at string) error) error {
	at := m.inside(path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return create(at)
}

func (m *Machine) inside(path string) string { return filepath.Join(m.root(), path) }

// mountBelow mounts what is not of the overlay.
func (m *Machine) mountBelow() error {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := mount(dir, m.inside(dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	for dir, mode := range map[string]string{"/run": "mode=755", "/tmp": "mode=1777"} {
		if err := mount("tmpfs", m.inside(dir), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, mode); err != nil {
			return err
		}
	}
	if err := os.Mkdir(m.inside("/run/lock"), 0o755); err != nil {
		return err
	}
	for _, dir := range disks {
		if err := os.MkdirAll(m.inside(dir), 0o755); err != nil {
			return err
		}
		if err := mount(m.disk(dir), m.inside(dir), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	programs := m.inside("/usr/local/bin")
	if err := mount(m.c.Programs, programs, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return mount("", programs, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}
