// Package machine makes a part of this machine look like a machine of its own: with a
// network, a root file system and a cgroup that nobody else uses. Its files begin as a copy
// of this machine's (an overlay), and what is written there stays there.
//
// All that a machine consists of goes away with its processes and one unmount: every mount
// that is made on it lives in its mount namespace.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// sweepTimeout bounds the end of a machine: some hundred processes to kill and cgroups to
// remove, on a busy machine.
const sweepTimeout = 60 * time.Second

// searchPath is what a machine's programs find other programs by.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// disks are the directories that are on this machine's own disk, as an overlay cannot lie on
// an overlay, and what is large should not be in memory. Each is empty at first.
var disks = []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/headstart", "/var/log"}

// hidden are directories of this machine's that a new machine does not have.
var hidden = []string{"/etc/containerd", "/etc/cni", "/etc/kubernetes", "/opt/cni", "/opt/containerd", "/opt/headstart", "/var/lib/cni", "/var/lib/etcd"}

// Config says what machine to make.
type Config struct {
	// Name is a DNS label.
	Name string
	// Dir is where it keeps what it has on disk. It must not be in memory.
	Dir string
	// NetNS is the path of its network namespace, which must be there.
	NetNS string
	// Cgroup is the path of its cgroup, two levels deep; its containers belong below it.
	Cgroup string
	// Programs is a directory of this machine that it sees, read only, as /usr/local/bin.
	Programs string
	// Files are files it begins with, by absolute path.
	Files map[string]File
	// Links are symbolic links it begins with, by absolute path.
	Links map[string]string
}

// File is a file of a new machine.
type File struct {
	Content string
	Mode    os.FileMode // zero: 0644
}

// Machine is a machine that was made, perhaps by another process.
type Machine struct{ c Config }

// Open returns the machine that an equal Config has made. Files and Links do not matter.
func Open(c Config) *Machine { return &Machine{c: c} }

// Make makes a machine. Sweep removes it, also when Make has failed.
func Make(c Config) (*Machine, error) {
	m := &Machine{c: c}
	if err := makeCgroup(m.system()); err != nil {
		return nil, err
	}
	if err := m.makeNamespace(); err != nil {
		return nil, fmt.Errorf("making machine %s: %w", c.Name, err)
	}
	return m, nil
}

// system is the cgroup of the machine's own programs.
func (m *Machine) system() string { return m.c.Cgroup + "/system" }

// mountNS keeps the machine's mount namespace.
func (m *Machine) mountNS() string { return filepath.Join(m.pins(), "mnt") }

// pins is a mount of its own: a namespace cannot be kept on one that is shared with others.
func (m *Machine) pins() string { return filepath.Join(m.c.Dir, "ns") }

// enter is a shell script: go into the cgroups up to "--", then run the rest there.
const enter = `while [ "$1" != -- ]; do echo 0 >"$1" || exit 1; shift; done; shift; exec "$@"`

// Args is the command line, from the program on, that runs a command on the machine in the
// place of the process that runs it.
func (m *Machine) Args(command ...string) ([]string, error) {
	args := []string{"/bin/sh", "-c", enter, "enter"}
	files, err := procsFiles(m.system())
	if err != nil {
		return nil, err
	}
	args = append(append(args, files...), "--", "nsenter", "--net="+m.c.NetNS, "--mount="+m.mountNS(), "--")
	return append(args, command...), nil
}

// Env is the environment of the machine's programs.
func (m *Machine) Env() []string {
	return []string{"PATH=" + searchPath, "HOME=/root", "LANG=C.UTF-8"}
}

// Command is a command to run on the machine.
func (m *Machine) Command(ctx context.Context, command ...string) *exec.Cmd {
	args, err := m.Args(command...)
	if err != nil {
		cmd := exec.CommandContext(ctx, "")
		cmd.Err = err
		return cmd
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = m.Env()
	// What it leaves running must not keep us waiting for its output.
	cmd.WaitDelay = time.Second
	return cmd
}

// Run runs a command on the machine and returns what it writes to stdout. What it writes to
// stderr is in the error.
func (m *Machine) Run(ctx context.Context, command ...string) (string, error) {
	out, err := m.Command(ctx, command...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return string(out), fmt.Errorf("running %s on %s: %w", command[0], m.c.Name, err)
	}
	return string(out), nil
}

// Kill ends every process of the machine at once, containers included, and keeps its files.
func (m *Machine) Kill(ctx context.Context) error {
	namespace, err := identify(m.mountNS())
	if err != nil {
		return err
	}
	err = process.Kill(ctx, func(table []process.Entry) (found []int) {
		for _, e := range table {
			if m.owns(e.PID, namespace) {
				found = append(found, e.PID)
			}
		}
		return found
	})
	if err != nil {
		return fmt.Errorf("ending the processes of %s: %w", m.c.Name, err)
	}
	return nil
}

// boot does to the file system what a reboot does: what was in memory is gone.
const boot = `
umount --lazy --recursive /run && mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/lock || exit 1
while read -r _ _ _ _ place _; do
	case $place in /var/lib/kubelet/*) echo "$place" ;; esac
done </proc/self/mountinfo | sort -r | while read -r place; do umount --lazy "$place"; done`

// Boot makes a killed machine ready to start again: what was on its disk is still there, and
// what was in /run is not.
func (m *Machine) Boot(ctx context.Context) error {
	_, err := m.Run(ctx, "sh", "-c", boot)
	return err
}

// owns tells whether a process is the machine's: by its cgroup, which containers cannot
// leave, or by its mount namespace.
func (m *Machine) owns(pid int, namespace identity) bool {
	if inCgroup(pid, m.c.Cgroup) {
		return true
	}
	id, err := identify(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil && namespace != (identity{}) && id == namespace
}

// Sweep removes a machine, running or half made, with its files. With nothing to remove it
// does nothing.
func (m *Machine) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if err := m.Kill(ctx); err != nil {
		return err
	}
	for _, dir := range []string{m.mountNS(), m.pins()} {
		if err := unmount(dir); err != nil {
			return err
		}
	}
	if err := removeCgroup(ctx, m.c.Cgroup); err != nil {
		return err
	}
	// All its mounts are gone with its namespace. Should one be left, its files are others'.
	if err := containerd.SweepMounts(m.c.Dir); err != nil {
		return err
	}
	if err := os.RemoveAll(m.c.Dir); err != nil {
		return fmt.Errorf("removing the files of %s: %w", m.c.Name, err)
	}
	return nil
}

// identity is a namespace's, the same for every file that shows it (namespaces(7)).
type identity struct{ dev, ino uint64 }

// identify returns the zero identity for what is not there.
func identify(path string) (identity, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, unix.ENOENT) {
		return identity{}, nil
	}
	if err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{st.Dev, st.Ino}, nil
}

func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil // not a mount any more, or never was
		}
		if err != nil {
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}
