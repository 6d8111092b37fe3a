// Package containerd is a node's containerd, seen through its socket: which process it is,
// how it is restarted, and whether it runs sandboxes of Headstart.
package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install"
)

const (
	proc = "/proc"
	// name is what the kernel calls the process, also where one program has many names, as
	// with k3s.
	name = "containerd"
)

// process is a running containerd.
type process struct {
	pid    int
	id     string
	config string
	parent int
	cgroup []byte // /proc/PID/cgroup
}

// process finds who listens on the socket. It needs the node's process ids, so hostPID.
func (c *Containerd) process(ctx context.Context) (process, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return process{}, fmt.Errorf("connecting to containerd: %w", err)
	}
	defer conn.Close()
	pid, err := peer(conn.(*net.UnixConn))
	if err != nil {
		return process{}, err
	}
	return inspect(pid, c.socket)
}

// peer is the process that listens at the other end.
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, fmt.Errorf("finding the listening process: %w", failed)
	}
	return int(cred.Pid), nil
}

// inspect reads what the kernel knows of a process.
func inspect(pid int, socket string) (process, error) {
	if pid == 0 {
		return process{}, fmt.Errorf("the process that listens on %s is not in sight; the installer's pod needs hostPID: true", socket)
	}
	boot, err := os.ReadFile(path.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return process{}, err
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return process{}, err
	}
	stat, err := p.Stat()
	if err != nil {
		return process{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	if stat.Comm != name {
		return process{}, fmt.Errorf(
			"process %d, which listens on %s, is %q and not containerd", pid, socket, stat.Comm,
		)
	}
	args, err := p.CmdLine()
	if err != nil {
		return process{}, err
	}
	cgroup, err := os.ReadFile(path.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return process{}, err
	}
	return process{
		pid:    pid,
		parent: stat.PPID,
		cgroup: cgroup,
		id:     fmt.Sprintf("%s/%d/%d", bytes.TrimSpace(boot), pid, stat.Starttime),
		config: configOf(args),
	}, nil
}

// configOf is what containerd's command line says of its configuration.
func configOf(args []string) string {
	for i, a := range args {
		for _, flag := range []string{"--config", "-config", "-c", "--c"} {
			if a == flag && i+1 < len(args) && path.IsAbs(args[i+1]) {
				return path.Clean(args[i+1])
			}
			if v, ok := strings.CutPrefix(a, flag+"="); ok && path.IsAbs(v) {
				return path.Clean(v)
			}
		}
	}
	return ""
}

// Process is install.Runtime's.
func (c *Containerd) Process(ctx context.Context) (install.Process, error) {
	p, err := c.process(ctx)
	return install.Process{ID: p.id, Config: p.config}, err
}

// end ends the process, unless it is another one by now.
func (c *Containerd) end(p process) error {
	signal, err := ending(c.Files, p)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reaching process %d: %w", p.pid, err)
	}
	defer unix.Close(fd)
	// The descriptor is of this process for good; only now is it known to be the right one.
	if now, err := inspect(p.pid, c.socket); err != nil || now.id != p.id {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", p.pid, err)
	}
	return nil
}
