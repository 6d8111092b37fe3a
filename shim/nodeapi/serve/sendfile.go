package serve

import (
	"cmp"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	sys "golang.org/x/sys/unix"
)

const (
	// sendMost is how much of a file one system call sends, in bytes, and turnMost how much goes without a look at whether
	// the connection has been closed meanwhile.
	sendMost, turnMost = 1 << 20, 16 << 20
	// readyWithin is how long a thread waits for a reader that is as fast as the writer: some times what the reader takes for
	// what a connection holds. Others are waited for by the runtime, which wakes up later.
	readyWithin = 5 * time.Millisecond
)

// waits are the threads that may wait for readers at a time.
var waits = make(chan struct{}, 2*runtime.NumCPU())

// ReadFrom implements io.ReaderFrom: files go to the connection by sendfile(2). A connection of TCP would do so too, but
// has the runtime wait for its reader each time that it is full: a reader on the same machine gets a tenth less so.
func (c *placed) ReadFrom(from io.Reader) (int64, error) {
	part, is := from.(*io.LimitedReader)
	if !is {
		return io.Copy(c.Conn, from)
	}
	file, is := part.R.(*os.File)
	to, err := c.SyscallConn()
	if !is || err != nil {
		return io.Copy(c.Conn, from)
	}
	source, err := file.SyscallConn()
	if err != nil {
		return io.Copy(c.Conn, from)
	}
	sent, err := sendFile(to, source, part.N)
	part.N -= sent
	if sent == 0 && (err == sys.EINVAL || err == sys.ENOSYS) { // not from this file system
		return io.Copy(c.Conn, from)
	}
	return sent, err
}

// sendFile sends the next n bytes of a file. It sends fewer if the file ends.
func sendFile(to, file syscall.RawConn, n int64) (sent int64, err error) {
	for before := int64(-1); sent < n && sent > before && err == nil; {
		before = sent
		turn := min(n, sent+turnMost)
		var failed, closed error
		err = file.Read(func(source uintptr) bool {
			closed = to.Write(func(fd uintptr) bool {
				for sent < turn {
					some, e := sys.Sendfile(int(fd), int(source), nil, int(min(turn-sent, sendMost)))
					switch {
					case some > 0:
						sent += int64(some)
					case e == sys.EINTR, e == sys.EAGAIN && soonReady(fd):
					case e == sys.EAGAIN:
						return false
					default:
						failed = e // or the file's end
						return true
					}
				}
				return true
			})
			return true
		})
		err = cmp.Or(err, closed, failed)
	}
	return sent, err
}

// soonReady waits a little until a connection takes more.
func soonReady(fd uintptr) bool {
	select {
	case waits <- struct{}{}:
		defer func() { <-waits }()
	default:
		return false
	}
	n, err := sys.Poll([]sys.PollFd{{Fd: int32(fd), Events: sys.POLLOUT}}, int(readyWithin.Milliseconds()))
	return n > 0 && err == nil
}
