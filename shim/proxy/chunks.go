package proxy

import (
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// chunkSize is how many bytes of a body are read and written at a time, if so many are there.
	// Beyond it little is gained (BenchmarkDeliverBody), and each body that is sent has one chunk.
	chunkSize = 256 << 10
	// chunksMost is how many there are: 16 MiB. A body has its chunk until all of it is sent, as
	// long as its client or its function likes. One that finds none goes in the 32 KiB of io.Copy.
	chunksMost = 64
)

var (
	chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}
	// chunksTaken has one for each that is in use.
	chunksTaken = make(chan struct{}, chunksMost)
)

// functionConn is a connection to a function that takes bodies in large chunks. A transport
// offers it one of known length as a reader, which net.TCPConn would copy 32 KiB at a time. Nor
// would sendfile(2) be better, between programs of one machine: it hands over a page at a time,
// and what is saved at this end costs the reader more.
type functionConn struct {
	*net.TCPConn
	ending
}

// Read fails with ECONNRESET when the function's side has reset the connection, and not with io.EOF,
// which it would if a Write has been told of the reset before.
func (c functionConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if err == io.EOF && isReset(c.TCPConn) {
		err = syscall.ECONNRESET
	}
	c.heard(err)
	return n, err
}

// isReset tells of a connection that its other side has ended whether it was reset: one that was
// closed waits for this side's end (RFC 9293, section 3.3.2).
func isReset(c *net.TCPConn) (reset bool) {
	socket(c, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return reset
}

// Write fails when the function's answer has been read, or the connection is closed here: a
// transport takes a failed write for the request's end. A function need not read its body, and
// the kernel resets the connection of one that closes it with bytes unread. Its answer came
// before that, and is still here to be read.
func (c functionConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if err != nil {
		<-c.Over().Done()
	}
	return n, err
}

// Close ends the wait of a Write as well.
func (c functionConn) Close() error {
	defer c.end(net.ErrClosed)
	return c.TCPConn.Close()
}

// ReadFrom implements io.ReaderFrom. What has come is written at once.
func (c functionConn) ReadFrom(r io.Reader) (int64, error) {
	to := struct{ io.Writer }{c} // without ReadFrom, which io.Copy would prefer
	select {
	case chunksTaken <- struct{}{}:
		defer func() { <-chunksTaken }()
	default:
		return io.Copy(to, r)
	}
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	return io.CopyBuffer(to, r, chunk[:])
}
