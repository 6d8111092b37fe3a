// Package proxy sends one request on, to a function or to another node's daemon, and passes the
// answer back. It knows HTTP and TCP, how a body is sent again (Body), and who has failed when one
// of the three did: the client, the other side, or the connection between. Where a request goes,
// and what its headers and failures mean, its user says by a Hop.
package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// ErrClientGone is nobody's failure. Whoever sent half a body and still listens is
// told, hence the status.
var ErrClientGone = problem.New(http.StatusBadRequest, problem.ReasonClientGone, "",
	"the client went away before its request was over")

// Broken marks an error after the answer's first byte: too late for a problem.
type Broken struct{ error }

func (e Broken) Unwrap() error { return e.error }

// IsBroken tells whether an answer has begun before it failed.
func IsBroken(err error) bool {
	_, is := errors.AsType[Broken](err)
	return is
}

// Hop is what the way of one request to the other side depends on.
type Hop struct {
	// Via sends it. A connection that is an Ending stops the request's body with its end.
	Via  http.RoundTripper
	Body *Body
	// Paced: the client is to send its body little faster than the other side takes it.
	Paced bool
	// Prepare edits the outgoing request.
	Prepare func(out *http.Request)
	// Accept looks at the answer before it is passed on, and edits its headers. An error takes the
	// place of the answer, and goes to Explain.
	Accept func(*http.Response) error
	// Explain puts a failure of the other side into words; midway: of its answer.
	Explain func(err error, midway bool) error
}

// forwarded are headers that ReverseProxy drops; the gateway made them and is to be
// believed.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// Send relays one request and its answer. Its error is ErrClientGone, why the node does not take
// the body, or what Hop.Explain returns; Broken with one of these when the answer has begun.
func Send(ctx context.Context, w http.ResponseWriter, r *http.Request, to Hop) error {
	out, trailer := r.WithContext(ctx), to.Body.trailer()
	out.Trailer = nil // it may be about to be filled
	until, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sent, err := to.Body.open(until, trailer, to.Paced)
	if err != nil {
		return err
	}
	defer sent.Close() // ReverseProxy does not; nothing is lost with it
	out.Body = sent
	ctx, forget := onConnection(ctx, waits(r), stop)
	defer forget()
	var got *watched // nil until the answer begins
	var failure error
	hasBody := false
	rp := &httputil.ReverseProxy{
		Transport:     to.Via,
		FlushInterval: -1, // an answer may be a stream
		BufferPool:    buffers{},
		// What it would log, Send returns.
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
			pr.Out.GetBody = nil                     // it would be another body than the one that is sent
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // with what only the function can read
			pr.Out.Trailer = trailer                 // filled while the body is read
			if to.Body.stored != nil {
				pr.Out.Header.Del("Expect") // it was met: the body comes already
			}
			to.Prepare(pr.Out)
			hasBody = pr.Out.ContentLength != 0
			if hasBody && pr.Out.Body != nil {
				pr.Out.Body = marked{pr.Out.Body}
			}
		},
		ModifyResponse: func(res *http.Response) error {
			if err := to.Accept(res); err != nil {
				return err
			}
			if res.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection
				got = &watched{ReadCloser: res.Body, untilReset: hasBody && untilClosed(res)}
				res.Body = got
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
	}
	to.Body.Duplex()
	aw := &answering{ResponseWriter: w, own: w.Header().Clone(), body: to.Body}
	whole := wholly(func() { rp.ServeHTTP(aw, out.WithContext(ctx)) })
	// Its panic is for servers only, and behind an entry of a stream there is none.
	whole = whole && (got == nil || got.failed() == nil)
	if got == nil {
		aw.restore()
	}
	switch gone := r.Context().Err() != nil || to.Body.failed() != nil; {
	case !whole && (gone || got == nil || got.failed() == nil): // it could not be written
		return Broken{ErrClientGone}
	case !whole && to.Body.refused() != nil:
		return Broken{to.Body.refused()}
	case !whole:
		return Broken{to.Explain(got.failed(), true)}
	case failure != nil && gone:
		return ErrClientGone
	case failure != nil && to.Body.refused() != nil:
		return to.Body.refused()
	case failure != nil:
		return to.Explain(failure, false)
	}
	return nil
}

// waits is how much of a request can wait in a connection for the other side, in bytes; -1 for
// any number.
func waits(r *http.Request) int64 {
	if r.Header.Get("Upgrade") != "" {
		return -1 // what follows is no body, and can wait as one
	}
	return r.ContentLength
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
