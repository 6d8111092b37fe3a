package ingress

import (
	"io"
	"net"
	"sync"
)

// chunkSize is how many bytes of a body are read and written at a time, if so many are there.
// Beyond it little is gained (BenchmarkDeliverBody), and each body that is sent has one chunk.
const chunkSize = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// inChunks is a connection that takes bodies in large chunks. A transport offers it one of
// known length as a reader, which net.TCPConn would copy 32 KiB at a time. Nor would
// sendfile(2) be better, between programs of one machine: it hands over a page at a time, and
// what is saved at this end costs the reader more.
type inChunks struct {
	*net.TCPConn
	ending
}

func (c inChunks) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.heard(err)
	return n, err
}

// ReadFrom implements io.ReaderFrom. What has come is written at once.
func (c inChunks) ReadFrom(r io.Reader) (int64, error) {
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	// Without its own ReadFrom, which CopyBuffer would prefer.
	return io.CopyBuffer(struct{ io.Writer }{c.TCPConn}, r, chunk[:])
}
