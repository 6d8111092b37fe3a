package probe

import (
	"crypto/tls"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcp is what the kernel knows of a connection (tcp(7), TCP_INFO).
type tcp struct {
	smoothed, least time.Duration
	acknowledged    uint64 // bytes
	repeated        uint32 // segments that were sent again
}

var errNoTCP = errors.New("not a TCP connection")

func raw(c *tls.Conn) (syscall.RawConn, error) {
	conn, is := c.NetConn().(syscall.Conn)
	if !is {
		return nil, errNoTCP
	}
	return conn.SyscallConn()
}

func look(c syscall.RawConn) (t tcp, err error) {
	var info *unix.TCPInfo
	failed := c.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err = errors.Join(failed, err); err != nil {
		return tcp{}, fmt.Errorf("asking the kernel for a round-trip time: %w", err)
	}
	return tcp{smoothed: time.Duration(info.Rtt) * time.Microsecond, least: time.Duration(info.Min_rtt) * time.Microsecond,
		acknowledged: info.Bytes_acked, repeated: info.Total_retrans}, nil
}

// rttUnknown is what Linux has for the least of a connection that measured nothing.
const rttUnknown = time.Duration(1<<32-1) * time.Microsecond

// between is the round trip of the one segment that was acknowledged between two looks:
// the kernel adds an eighth of what it is off to the smoothed time (RFC 6298, section 2.3),
// so it can be had back, to 15 us. Unlike the time that a program sees it has no share of
// either side's scheduler. ok is false if it cannot be told.
func between(before, after tcp) (rtt time.Duration, ok bool) {
	if before.smoothed == 0 || after.repeated != before.repeated || after.acknowledged == before.acknowledged {
		return 0, false
	}
	rtt = 8*after.smoothed - 7*before.smoothed
	return rtt, rtt > 0
}

// acknowledgeAtOnce has the kernel acknowledge what comes next when it comes, and not with
// the program's answer or 40 ms later.
func acknowledgeAtOnce(c syscall.RawConn) {
	// Without it round-trip times have the program's share, no more.
	_ = c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
}
