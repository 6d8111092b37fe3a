package ktls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The options of a socket with TLS: <linux/tls.h>.
const (
	optionWrite = 1
	optionRead  = 2
)

// probeAgain is after what time a kernel without TLS is asked again. A node's installer may load the module meanwhile.
const probeAgain = time.Minute

// ErrNoModule says that the kernel would do TLS with its module, which is not loaded.
var ErrNoModule = errors.New("the kernel's module tls is not loaded, or does not exist")

var probed struct {
	sync.Mutex
	err   error
	until time.Time // when err has to be looked at again
	works bool
}

// Probe tells why this kernel does no TLS; nil: it does. If the process has CAP_NET_ADMIN on the node, the kernel loads
// its module for it, with the node's modprobe.
func Probe() error {
	probed.Lock()
	defer probed.Unlock()
	if probed.works || time.Now().Before(probed.until) {
		return probed.err
	}
	probed.err = probe()
	probed.works, probed.until = probed.err == nil, time.Now().Add(probeAgain)
	return probed.err
}

// probe does with a connection to itself what Kernel does, with keys that protect nothing.
func probe() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("looking whether the kernel has TLS: %w", err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return fmt.Errorf("looking whether the kernel has TLS: %w", err)
	}
	defer conn.Close()
	s := suites[tls.TLS_AES_128_GCM_SHA256]
	keys := direction{secret: make([]byte, s.hash().Size())}
	_, err = handOver(conn.(*net.TCPConn), s, &keys, &keys)
	switch {
	case errors.Is(err, unix.ENOENT):
		return ErrNoModule
	case err != nil:
		return fmt.Errorf("the kernel has no TLS 1.3: %w", err)
	}
	return nil
}

// set is setsockopt(2). Nothing copies the value, which may be keys.
func set(fd uintptr, level, option int, value []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, fd, uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(len(value)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
