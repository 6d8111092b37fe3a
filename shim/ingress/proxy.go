package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"syscall"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// hop is what the relaying of one request depends on.
type hop struct {
	id   string
	body *clientBody
	via  http.RoundTripper
	// prepare edits the outgoing request.
	prepare func(out *http.Request)
	// explain puts a failure of the other side into words; midway: of its answer.
	explain func(err error, midway bool) error
	// daemon: the other side is another node's daemon, which can hand the request back.
	daemon bool
	// heard hears the answer's headers; nil: nobody does.
	heard func(http.Header)
}

// forwarded are headers that ReverseProxy drops; the gateway made them and is to be
// believed.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// proxy relays one request and its answer, and says who failed if one of the three
// did: the client, the other side before its answer, or midway of it (broken).
func (in *Ingress) proxy(ctx context.Context, w http.ResponseWriter, r *http.Request, to hop) error {
	out, trailer := r.WithContext(ctx), to.body.trailer()
	out.Trailer = nil // it may be about to be filled
	until, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sent, err := to.body.open(until, trailer, to.daemon)
	if err != nil {
		return err
	}
	defer sent.Close() // ReverseProxy does not; nothing is lost with it
	out.Body = sent
	ctx, forget := untilEnded(ctx, stop)
	defer forget()
	var got *watched // nil until the answer begins
	var failure error
	hasBody := false
	rp := &httputil.ReverseProxy{
		Transport:     to.via,
		FlushInterval: -1, // an answer may be a stream
		// What it would log is told by serve.
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) {
			for _, h := range forwarded {
				if v, ok := pr.In.Header[h]; ok {
					pr.Out.Header[h] = v
				}
			}
			if pr.Out.Body != nil {
				pr.Out.Body = sent // which ReverseProxy has wrapped so that no transport can close it
			}
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // with what only the function can read
			pr.Out.Trailer = trailer                 // filled while the body is read
			if to.body.input != nil {
				pr.Out.Header.Del("Expect") // it was met: the body comes already
			}
			to.prepare(pr.Out)
			hasBody = pr.Out.ContentLength != 0
		},
		ModifyResponse: func(res *http.Response) error {
			if to.daemon && res.Header.Get(filterapi.HeaderUndelivered) != "" {
				return handedBack(res)
			}
			if to.heard != nil {
				to.heard(res.Header)
			}
			res.Header.Del(filterapi.HeaderUndelivered)
			res.Header.Set(filterapi.HeaderRequest, to.id)
			if res.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection
				got = &watched{ReadCloser: res.Body, untilReset: hasBody && untilClosed(res)}
				res.Body = got
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
	}
	// Without it the server would read the whole body before it lets an answer pass.
	// The only error is that a ResponseWriter of another kind does not know of it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	aw := &answering{ResponseWriter: w, own: w.Header().Clone(), body: to.body}
	whole := wholly(func() { rp.ServeHTTP(aw, out.WithContext(ctx)) })
	// Its panic is for servers only, and behind an entry of a stream there is none.
	whole = whole && (got == nil || got.failed() == nil)
	if got == nil {
		aw.restore()
	}
	switch gone := r.Context().Err() != nil || to.body.failed() != nil; {
	case !whole && (gone || got == nil || got.failed() == nil): // it could not be written
		return broken{errClientGone}
	case !whole && to.body.refused() != nil:
		return broken{to.body.refused()}
	case !whole:
		return broken{to.explain(got.failed(), true)}
	case failure != nil && gone:
		return errClientGone
	case failure != nil && to.body.refused() != nil:
		return to.body.refused()
	case isUndelivered(failure):
		return failure
	case isDial(failure):
		return undelivered{to.explain(failure, false)}
	case failure != nil:
		return to.explain(failure, false)
	}
	return nil
}

// opDial is the operation in the errors of connections that do not come about.
const opDial = "dial"

// isDial tells whether err means that no connection came about.
func isDial(err error) bool {
	dial, is := errors.AsType[*net.OpError](err)
	return is && dial.Op == opDial
}

// problemLimit bounds the problem details of another daemon, in bytes.
const problemLimit = 64 << 10

// handedBack is the error of a request that another daemon could not deliver. It has told
// the operator.
func handedBack(res *http.Response) error {
	var p problem.Problem
	if err := json.NewDecoder(io.LimitReader(res.Body, problemLimit)).Decode(&p); err != nil {
		return fmt.Errorf("reading why a request is handed back: %w", err)
	}
	p.Status = res.StatusCode // whatever it says
	return undelivered{reported{&p}}
}

// wholly tells whether relay passed a whole answer: ReverseProxy panics when one
// breaks off.
func wholly(relay func()) (whole bool) {
	defer func() {
		if e := recover(); e != nil && e != http.ErrAbortHandler {
			panic(e)
		}
	}()
	relay()
	return true
}

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
