// Package notify answers the connect(2) calls of a container whose seccomp profile has them wait
// (seccomp_unotify(2)): some sockets are connected before, and all calls go on in the kernel.
//
// What a call says is only used to decide. A program that changes the address, the descriptor or the socket
// meanwhile, by another thread, gets a connection that it may have anyway, or the call of its own.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Asker connects programs' sockets before their connect(2) goes on: without blocking, and without asking the kernel
// afterwards how that ended. The kernel takes connect(2) for this question, and says that it is connected.
type Asker interface {
	// Targets tells whether an address is asked about at all.
	Targets(at netip.AddrPort) bool
	// Ahead returns what connects a socket for an address without asking anybody, nil for nothing. It is to be called once.
	Ahead(at netip.AddrPort) (connect func(socket int))
	// Connect asks, and returns what Ahead does; nil if the program is to connect on its own.
	Connect(ctx context.Context, at netip.AddrPort) (connect func(socket int), err error)
}

const (
	socketName = "connect.sock"
	// listenersLimit is how many processes of a container are waited for at a time, which runc has started with the
	// profile: the first one, and each that is executed later. The others fail in what they connect to.
	listenersLimit = 64
	// stateLimit is longer than what runc says of a container, in bytes, which is not looked into.
	stateLimit = 64 << 10
	// timeout bounds a hand-over, which takes less than a millisecond.
	timeout = 2 * time.Second
	// descriptorSize is that of a descriptor in a control message, in bytes.
	descriptorSize = 4
)

// arch is what the kernel calls the architecture of the shim: a program of another one (32 bits) connects on its own.
var arch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// Available tells whether the kernel can: from Linux 5.6 on, where a program's socket can be had.
func Available() error {
	if arch == 0 {
		return fmt.Errorf("not for %s", runtime.GOARCH)
	}
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("the kernel has no user notification: %w", errno)
	}
	if _, err := unix.PidfdGetfd(-1, 0, 0); err == unix.ENOSYS {
		return fmt.Errorf("the kernel is older than 5.6: %w", err)
	}
	return nil
}

// Listener is a container's.
type Listener struct {
	socket *net.UnixListener
	dir    *os.File
	wake   [2]int // a pipe whose end wakes what waits for calls
	asker  Asker
	came   atomic.Int64 // calls

	places chan struct{}
	all    sync.WaitGroup
	closed sync.Once
}

// Listen listens in a container's bundle, which nobody else writes in, for what runc hands over of the container.
func Listen(bundle string, asker Asker) (_ *Listener, err error) {
	dir, err := os.OpenFile(bundle, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the bundle: %w", err)
	}
	l := &Listener{dir: dir, asker: asker, places: make(chan struct{}, listenersLimit)}
	defer func() {
		if err != nil {
			_ = dir.Close()
		}
	}()
	if err := os.Remove(filepath.Join(bundle, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing a socket that was left: %w", err)
	}
	if l.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: l.Path(), Net: "unix"}); err != nil {
		return nil, fmt.Errorf("listening for calls: %w", err)
	}
	if err = unix.Pipe2(l.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for calls: %w", err), l.socket.Close())
	}
	l.all.Go(l.accept)
	return l, nil
}

// Path is where runc finds the socket: a bundle's own path is longer than that of a socket may be.
func (l *Listener) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d/%s", os.Getpid(), l.dir.Fd(), socketName)
}

// Close ends all answers: programs that still run cannot connect any more.
func (l *Listener) Close() {
	l.closed.Do(func() {
		_ = l.socket.Close()
		_ = unix.Close(l.wake[1])
		l.all.Wait()
		_ = unix.Close(l.wake[0])
		_ = l.dir.Close()
	})
}

func (l *Listener) accept() {
	for {
		c, err := l.socket.AcceptUnix()
		if err != nil {
			return // it is closed
		}
		fd, err := receive(c)
		_ = c.Close() // nothing is answered
		if err != nil {
			continue
		}
		select {
		case l.places <- struct{}{}:
			l.all.Go(func() {
				defer func() { <-l.places }()
				newCalls(fd, l.asker, &l.came).answer(l.wake[0])
			})
		default:
			_ = unix.Close(fd)
		}
	}
}

// receive returns what runc hands over: the descriptor that calls come by.
func receive(c *net.UnixConn) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return -1, fmt.Errorf("receiving a listener: %w", err)
	}
	control := make([]byte, unix.CmsgSpace(descriptorSize))
	_, n, flags, _, err := c.ReadMsgUnix(make([]byte, stateLimit), control)
	if err != nil {
		return -1, fmt.Errorf("receiving a listener: %w", err)
	}
	var fds []int // the padding has room for another one
	messages, err := unix.ParseSocketControlMessage(control[:n])
	for _, m := range messages {
		rights, invalid := unix.ParseUnixRights(&m)
		fds, err = append(fds, rights...), errors.Join(err, invalid)
	}
	if err != nil || len(fds) != 1 || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			_ = unix.Close(fd) // a copy
		}
		return -1, errors.Join(errors.New("receiving a listener: not one descriptor"), err)
	}
	to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fds[0]))
	if err != nil || !strings.HasPrefix(to, "anon_inode:seccomp") {
		return -1, errors.Join(errors.New("receiving a listener: it is none"), err, unix.Close(fds[0]))
	}
	return fds[0], nil
}
