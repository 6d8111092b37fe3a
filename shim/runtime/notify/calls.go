package notify

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// askTimeout bounds what a call waits for the daemon, whose connections are there or not. A program that does not
	// want to wait for its connection waits for this.
	askTimeout = time.Second
	// askingLimit is how many calls of a listener are asked about at a time. Further ones go on by themselves.
	askingLimit = 64
	// urgent is the niceness of a thread that answers calls: a program waits for it, for some microseconds each time.
	urgent = -10
	// urgentLimit is how many calls of a container are urgent, which are those of its start. A program that connects in
	// a loop gets no more than its share of the node.
	urgentLimit = 64
	// mostNice less the kernel's number of a thread's priority is its niceness.
	mostNice = 20
)

// call is struct seccomp_notif.
type call struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// calls are those that come by one listener.
type calls struct {
	fd    int
	asker Asker
	came  *atomic.Int64 // calls of all the container's listeners

	places chan struct{}
	asking sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newCalls(fd int, asker Asker, came *atomic.Int64) *calls {
	c := &calls{fd: fd, asker: asker, came: came, places: make(chan struct{}, askingLimit)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// answer answers calls until no process is left that makes any, or wake is at its end. It has a thread of its own: Go's
// poller would take longer to wake it than the kernel takes for the call.
func (c *calls) answer(wake int) {
	runtime.LockOSThread() // and never unlocked: the thread ends with it
	defer unix.Close(c.fd)
	defer c.asking.Wait()
	defer c.cancel()
	// The program's thread waits for this one. (An older kernel, before 6.6, wakes it elsewhere.)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS,
		unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	ordinary := c.hasten()
	rehearse()
	for {
		ready := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}, {Fd: int32(wake)}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		} else if err != nil || ready[1].Revents != 0 || ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var q call // the kernel takes none that is not empty
		if ioctl(c.fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&q)) != nil {
			continue // it was interrupted meanwhile
		}
		if c.came.Add(1) > urgentLimit {
			ordinary()
		}
		at, is := address(q)
		if !is || !c.asker.Targets(at) {
			c.pass(q)
			continue
		}
		socket, is := c.socket(q)
		if !is {
			continue
		}
		if connect := c.asker.Ahead(at); connect != nil {
			c.connect(q, socket, connect)
			continue
		}
		select {
		case c.places <- struct{}{}:
			c.asking.Go(func() {
				defer func() { <-c.places }()
				ctx, cancel := context.WithTimeout(c.ctx, askTimeout)
				defer cancel()
				connect, err := c.asker.Connect(ctx, at)
				if err != nil {
					connect = nil // the program sees for itself
				}
				c.connect(q, socket, connect)
			})
		default:
			c.connect(q, socket, nil)
		}
	}
}

// hasten makes the thread urgent, if the container has not connected often. ordinary takes that back, once.
func (c *calls) hasten() (ordinary func()) {
	thread := unix.Gettid()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil || c.came.Load() >= urgentLimit {
		return func() {}
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, thread, urgent) // without it the thread is as good as others
	return sync.OnceFunc(func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, thread, mostNice-before) // which always may be
	})
}

// rehearse does once what a call's answer takes here, on a socket of its own: the first call does not wait for the shim's
// pages.
func rehearse() {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(socket)
	c := newCalls(-1, nil, nil) // nobody is answered
	c.cancel()
	raw := &unix.RawSockaddrInet4{Family: unix.AF_INET}
	q := call{pid: uint32(os.Getpid()), nr: unix.SYS_CONNECT, arch: arch,
		args: [6]uint64{uint64(socket), uint64(uintptr(unsafe.Pointer(raw))), unix.SizeofSockaddrInet4}}
	address(q)
	c.socket(q)
	fresh(socket)
	runtime.KeepAlive(raw)
}

// pass has the call go on in the kernel. One that was interrupted is nobody's any more.
func (c *calls) pass(q call) {
	r := reply{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_ = ioctl(c.fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

// valid tells whether the call still waits, and so whether its process is that of the call.
func (c *calls) valid(q call) bool {
	return ioctl(c.fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&q.id)) == nil
}

// address is where a call connects to. Whether the process was the call's, socket sees.
func address(q call) (netip.AddrPort, bool) {
	if q.nr != unix.SYS_CONNECT || q.arch != arch || q.pid == 0 {
		return netip.AddrPort{}, false
	}
	var raw [unix.SizeofSockaddrInet6]byte
	length := min(q.args[2]&0xffffffff, uint64(len(raw))) // the argument is an int
	if length < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}, false
	}
	local := []unix.Iovec{{Base: &raw[0], Len: length}}
	remote := []unix.RemoteIovec{{Base: uintptr(q.args[1]), Len: int(length)}}
	n, err := unix.ProcessVMReadv(int(q.pid), local, remote, 0)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return parse(raw[:n])
}

// parse reads a struct sockaddr of IP.
func parse(raw []byte) (netip.AddrPort, bool) {
	if len(raw) < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(raw[2:])
	switch family := binary.NativeEndian.Uint16(raw); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:])), port), true
	case family == unix.AF_INET6 && len(raw) >= unix.SizeofSockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:])).Unmap(), port), true
	}
	return netip.AddrPort{}, false
}

// socket returns the program's, once more. False: the call is answered.
func (c *calls) socket(q call) (int, bool) {
	process, err := openProcess(int(q.pid))
	if err != nil {
		c.pass(q)
		return -1, false
	}
	defer unix.Close(process)
	socket, err := unix.PidfdGetfd(process, number(q), 0)
	if err != nil {
		c.pass(q)
		return -1, false
	}
	if c.valid(q) && fresh(socket) {
		return socket, true
	}
	c.pass(q)
	_ = unix.Close(socket) // a copy
	return -1, false
}

// number is that of the call's descriptor in the program.
func number(q call) int { return int(int32(q.args[0])) }

// connect answers a call, and closes the copy of its socket: the call goes on when the socket is connected, and the kernel
// says so. Should a signal interrupt the call before, the program makes it again, and the kernel says the same.
func (c *calls) connect(q call, socket int, connect func(socket int)) {
	if connect != nil {
		connect(socket)
	}
	_ = unix.Close(socket) // the program may close its own at once, which ends the connection
	c.pass(q)
}

// openProcess returns a descriptor of a process, by one of its threads.
func openProcess(tid int) (int, error) {
	fd, err := unix.PidfdOpen(tid, unix.O_EXCL) // PIDFD_THREAD, from Linux 6.9 on
	if err != unix.EINVAL {
		return fd, err
	}
	pid, err := leader(tid)
	if err != nil {
		return -1, err
	}
	return unix.PidfdOpen(pid, 0)
}

// leader is the process of a thread.
func leader(tid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if id, is := strings.CutPrefix(line, "Tgid:"); is {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.New("a thread without a process")
}

// fresh tells whether a socket is of TCP, and neither bound, to a device either, nor connected: another one is the
// program's own.
func fresh(socket int) bool {
	protocol, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP {
		return false
	}
	device, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX)
	if err != nil || device != 0 {
		return false
	}
	own, err := unix.Getsockname(socket)
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return err == nil && own.Port == 0 && own.Addr == [4]byte{}
	case *unix.SockaddrInet6:
		return err == nil && own.Port == 0 && own.Addr == [16]byte{}
	}
	return false
}
