package functionapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/byterange"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

// errUnknown is all that a sandbox learns of requests that are not its own.
var errUnknown = problem.New(http.StatusNotFound, "RequestUnknown", "", "no request with this id is being worked on in this sandbox")

// read answers with an input of a request that the sandbox works on, as it arrives. which is
// <request>, or <request>/<name>.
func (h *handler) read(w http.ResponseWriter, r *http.Request, which string) {
	request, name, _ := strings.Cut(which, "/")
	leave, full := h.enter()
	defer leave()
	own, err := h.find(w, r, request)
	if err == nil {
		err = full
	}
	if own == nil && err == nil && h.sandbox.previous.Load() {
		h.readPrevious(w, r)
		return
	}
	if own == nil && err == nil {
		err = errUnknown
	}
	var n int64
	if err == nil {
		n, err = h.serveInput(w, r, own, name)
	}
	m, reason := h.server.config.Metrics, resultOK
	switch _, midway := errors.AsType[midway](err); {
	case midway:
		reason = problem.Of(err).Title
	case err != nil:
		reason = h.refuse(w, err, "")
	}
	m.reads.WithLabelValues(reason).Inc()
	m.bytes.Add(float64(n))
	if _, broke := errors.AsType[midway](err); broke {
		panic(http.ErrAbortHandler) // the only way to tell that the answer is not whole
	}
}

// enter counts a read until leave is called, also one that is too many.
func (h *handler) enter() (leave func(), full error) {
	here := h.sandbox.reads.Add(1) <= ReadsLimit
	leaveNode, why := h.server.reads.Try(h.sandbox.namespace, "reads")
	leave = func() {
		h.sandbox.reads.Add(-1)
		if leaveNode != nil {
			leaveNode()
		}
	}
	switch {
	case !here:
		return leave, tooManyReads(fmt.Sprintf("the sandbox has %d reads under way already", ReadsLimit))
	case leaveNode == nil:
		return leave, tooManyReads("the node has " + why)
	}
	return leave, nil
}

func tooManyReads(detail string) error {
	return problem.New(http.StatusServiceUnavailable, "TooManyReads", "", detail)
}

// find returns the request's delivery, nil if the sandbox works on no such request.
func (h *handler) find(w http.ResponseWriter, r *http.Request, request string) (*delivery, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, methodNotAllowed(w, http.MethodGet, http.MethodHead)
	}
	if request != sandboxes.JobInput && !nodeapi.IsRequestID(request) {
		return nil, errUnknown
	}
	own, ok := h.server.deliveries.find(h.sandbox.id, request)
	if !ok && request == sandboxes.JobInput {
		if err := h.awaitJob(r.Context()); err != nil {
			return nil, err
		}
		own, ok = h.server.deliveries.find(h.sandbox.id, request)
	}
	if !ok {
		return nil, nil
	}
	return own, nil
}

// awaitJob waits for the news of the sandbox's job, which its program may be ahead of. The
// daemon before, if there is one, may have what this one does not hear of.
func (h *handler) awaitJob(ctx context.Context) error {
	if h.server.config.Job == nil {
		return nil
	}
	err := h.server.config.Job(ctx, h.sandbox.id)
	switch {
	case err == nil || h.sandbox.previous.Load():
		return nil
	case ctx.Err() != nil:
		return errUnknown // nobody hears it
	}
	return err
}

// midway is an error after the answer's head.
type midway struct{ error }

func (e midway) Unwrap() error { return e.error }

// serveInput answers with the input or a part of it, and returns how many bytes that were.
func (h *handler) serveInput(w http.ResponseWriter, r *http.Request, own *delivery, name string) (n int64, err error) {
	input := own.Inputs[name]
	switch {
	case input == nil && name == "":
		return 0, problem.New(http.StatusNotFound, "NoInput", "", "the request has no stored input besides its body")
	case input == nil:
		return 0, problem.New(http.StatusNotFound, "NoInput", "", "the request has no input of that name")
	}
	ctx, span := tracer.Start(h.trace(r, own.Traceparent), tracing.Read, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(tracing.Request.String(own.Request), tracing.Instance.String(h.sandbox.id)))
	defer func() {
		span.SetAttributes(tracing.InputBytes.Int64(n))
		if name != "" {
			span.SetAttributes(tracing.InputName.String(name))
		}
		if err != nil {
			span.SetStatus(codes.Error, problem.Of(err).Title)
		}
		span.End()
	}()
	// A read ends with its request: what the buffer has for that is let go of.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(own.ctx, func() { cancel(errOver) })()
	part, err := choose(ctx, input, r)
	if err == nil {
		n, err = h.send(ctx, w, r, part)
	}
	if _, began := errors.AsType[midway](err); err != nil && !began && own.ctx.Err() != nil {
		err = errUnknown // by now
	}
	if errors.Is(err, byterange.ErrUnsatisfiable) {
		w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(part.object.Size, 10))
		err = problem.New(http.StatusRequestedRangeNotSatisfiable, "RangeNotSatisfiable", "header range", byterange.ErrUnsatisfiable.Error())
	}
	return n, err
}

// send answers with the part. What goes wrong after the answer's head is midway.
func (h *handler) send(ctx context.Context, w http.ResponseWriter, r *http.Request, p part) (n int64, err error) {
	var from io.ReadCloser
	if r.Method == http.MethodGet && p.length != 0 {
		if from, err = open(ctx, p.input, p.first); err != nil {
			return 0, err
		}
		defer from.Close()
	}
	p.head(w)
	if from == nil {
		return 0, nil
	}
	defer untaken(ctx, w)()
	room, leave := h.server.room(r, h.sandbox.namespace)
	defer leave()
	n, err = pass(w, from, p.length, room)
	if err != nil {
		return n, midway{err}
	}
	return n, nil
}

// untaken has the answer break off when ctx ends, also while the function takes nothing of it:
// what the buffer has for it would stay as long as the sandbox. forget ends that.
func untaken(ctx context.Context, w http.ResponseWriter) (forget func()) {
	control, ended := http.NewResponseController(w), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = control.SetWriteDeadline(past) // a connection that has none has ended
	})
	return func() {
		if !stop() {
			<-ended
			_ = control.SetWriteDeadline(time.Time{}) // the connection's next answer has its own time
		}
	}
}

// pass sends length bytes, or all if that is below 0, each as soon as it is there, by way of buf.
func pass(w http.ResponseWriter, from io.Reader, length int64, buf []byte) (n int64, err error) {
	if length >= 0 {
		from = io.LimitReader(from, length)
	}
	flush := http.NewResponseController(w).Flush
	for {
		read, err := from.Read(buf)
		if read > 0 {
			written, failed := w.Write(buf[:read])
			n += int64(written)
			if failed == nil {
				failed = flush()
			}
			if failed != nil {
				return n, failed
			}
		}
		switch {
		case err == io.EOF && n < length:
			return n, io.ErrUnexpectedEOF
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// trace is the request's context in the trace that it says, or else in that of traceparent.
func (h *handler) trace(r *http.Request, traceparent string) context.Context {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return tracing.Continue(r.Context(), traceparent)
}

// readPrevious reads from the daemon that had the socket before, which may have the request.
func (h *handler) readPrevious(w http.ResponseWriter, r *http.Request) {
	h.askPrevious(w, r, func(w http.ResponseWriter) { h.refuse(w, errUnknown, "") })
}

// askPrevious has the daemon answer that had the socket before, or otherwise if that has gone.
func (h *handler) askPrevious(w http.ResponseWriter, r *http.Request, otherwise func(http.ResponseWriter)) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.sandbox.dialPrevious(ctx)
	}, DisableKeepAlives: true, DisableCompression: true}
	(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "previous"
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { otherwise(w) },
	}).ServeHTTP(w, r)
}
