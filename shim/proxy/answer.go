package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// answering passes an answer on, without what another daemon says between it and us.
type answering struct {
	http.ResponseWriter
	own  http.Header // what is set besides the answer's
	body *Body       // of the request
}

// WriteHeader restores what was set before: ReverseProxy clears all with each answer before
// the answer.
func (a *answering) WriteHeader(status int) {
	interim := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if interim && a.Header().Get(filterapi.HeaderProgress) != "" {
		return
	}
	if !interim {
		a.restore()
	}
	if status >= http.StatusOK && a.body.CloseUnread() {
		a.body.Linger()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answering) restore() {
	h := a.Header()
	for name, v := range a.own {
		if _, set := h[name]; !set {
			h[name] = v
		}
	}
}

// Unwrap is for http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// untilClosed tells whether it is the connection's end that ends the answer's body (RFC 9112,
// section 6.3, rule 8).
func untilClosed(res *http.Response) bool {
	return res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0
}

// sentAtOnce is how much of an answer is on its way as soon as it is written, in bytes: ten segments
// (RFC 6928, section 2) of the smallest usual size.
const sentAtOnce = 10 * 1220

// watched is a body that remembers why it could not be read to its end.
type watched struct {
	io.ReadCloser
	// untilReset: a reset ends a body that is no longer than sentAtOnce as a close does. The other
	// side's kernel resets a connection that is closed with a part of the request's body unread, and
	// drops what it has not sent by then: a longer body may lack its end.
	untilReset bool
	read       int
	failure    atomic.Pointer[error]
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	if b.untilReset && b.read <= sentAtOnce && errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (b *watched) failed() error {
	return load(&b.failure)
}

func load(failure *atomic.Pointer[error]) error {
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// copySize is how many bytes of an answer are copied at a time: as many as ReverseProxy's own buffers have, of which it makes one for each.
const copySize = 32 << 10

var copies = sync.Pool{New: func() any { return new([copySize]byte) }}

// buffers implements httputil.BufferPool.
type buffers struct{}

func (buffers) Get() []byte  { return copies.Get().(*[copySize]byte)[:] }
func (buffers) Put(p []byte) { copies.Put((*[copySize]byte)(p)) }
