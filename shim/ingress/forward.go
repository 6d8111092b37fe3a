package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

const (
	// functionDialTimeout: the function is on this node and has just been ready.
	functionDialTimeout = 2 * time.Second
	// functionIdle is shorter than the idle timeouts of common servers (Node.js: 5 s),
	// so that a connection is rarely reused just as the function closes it.
	functionIdle = 4 * time.Second
	// peerDialTimeout: a node may be a slow edge link away, but not gone for longer.
	peerDialTimeout = 5 * time.Second
	// peerIdle keeps connections between nodes for the next request.
	peerIdle = 90 * time.Second
)

// errAnswered marks failures after the answer's first byte: too late for a problem.
var errAnswered = errors.New("the answer broke off")

func newFunctionTransport() *http.Transport {
	return &http.Transport{
		DialContext:        (&net.Dialer{Timeout: functionDialTimeout}).DialContext,
		IdleConnTimeout:    functionIdle,
		DisableCompression: true, // the answer is the client's, as the function wrote it
		WriteBufferSize:    128 << 10,
	}
}

// forward hands the request to the function and its answer to the caller. The input
// is the request's body, unless the request has a body of its own.
func (in *Ingress) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, addr netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, p.function.GetRequestTimeout().AsDuration())
	defer cancel()
	phases := newPhases(ctx)
	defer phases.end()
	// A context for the spans only, since ReverseProxy works on the request's.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { phases.wrote() }})
	var body *inputBody
	if p.input != nil && r.ContentLength == 0 { // a request's own body stays; the input is then the file only
		object, err := p.input.Object(ctx)
		if err != nil {
			return err
		}
		reader, err := p.input.NewReader(ctx)
		if err != nil {
			return err
		}
		defer reader.Close()
		body = &inputBody{object: object, reader: reader}
	}
	return in.proxy(ctx, w, r, in.functionSide, func(out *http.Request) {
		for _, h := range []string{headerInput, headerFunction, headerInstance} {
			out.Header.Del(h)
		}
		out.URL.Scheme, out.URL.Host = "http", addr.String()
		out.Header.Set(headerRequest, p.id)
		propagation.TraceContext{}.Inject(phases.ctx, propagation.HeaderCarrier(out.Header))
		if p.input != nil {
			out.Header.Set(headerInputFile, instance.InputMount+"/"+p.id)
		}
		if body != nil {
			body.attach(out)
		}
	}, func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) {
			return problem.New(http.StatusGatewayTimeout, "FunctionTimeout", "spec.template.spec.timeoutSeconds",
				fmt.Sprintf("the function did not answer within %s", p.function.GetRequestTimeout().AsDuration()))
		}
		return problem.New(http.StatusBadGateway, "FunctionFailed", "", "the function's program closed the connection without an answer")
	})
}

// inputBody is a stored input that takes the place of a request's empty body.
type inputBody struct {
	object source.Object
	reader io.ReadCloser
}

func (b *inputBody) attach(out *http.Request) {
	out.Body, out.ContentLength = b.reader, b.object.Size
	if b.object.Size == 0 {
		out.Body = http.NoBody
	}
	if out.Header.Get("Content-Type") == "" && b.object.ContentType != "" {
		out.Header.Set("Content-Type", b.object.ContentType)
	}
}

// NewPeerTransport returns a transport to other nodes' daemons, which have their
// address in their certificate.
func NewPeerTransport(conf *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:        (&net.Dialer{Timeout: peerDialTimeout}).DialContext,
		TLSClientConfig:    conf,
		DisableCompression: true,
		IdleConnTimeout:    peerIdle,
	}
}

// handOver sends the request to the daemon of the instance's node, which fetches the
// input by itself: over there the way from the store is as short as it can be.
func (in *Ingress) handOver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, bound *nodeapi.Bound) error {
	p.release(ctx)
	ctx, span := tracer.Start(ctx, tracing.Transfer, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.TransferKind.String(tracing.TransferPeer)))
	var once sync.Once
	end := func() { once.Do(func() { span.End() }) }
	defer end()
	parent := ctx
	// The transfer is over when the other node has what it needs to begin: the head.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end})
	return in.proxy(ctx, w, r, in.peers, func(out *http.Request) {
		out.URL.Scheme, out.URL.Host = "https", bound.GetPeerAddress()
		out.Header.Set(headerRequest, p.id)
		out.Header.Set(headerInstance, bound.GetInstance())
		propagation.TraceContext{}.Inject(parent, propagation.HeaderCarrier(out.Header))
	}, func(error) error {
		return problem.New(http.StatusBadGateway, "PeerUnreachable", "", "the daemon of the instance's node "+bound.GetNode()+" did not answer")
	})
}

// proxy relays one request. prepare edits the outgoing one; explain puts a failure
// before the first byte of the answer into words.
func (in *Ingress) proxy(ctx context.Context, w http.ResponseWriter, r *http.Request, via http.RoundTripper,
	prepare func(out *http.Request), explain func(error) error) error {
	var failure error
	answered := false
	rp := &httputil.ReverseProxy{
		Transport:     via,
		FlushInterval: -1, // an answer may be a stream
		Rewrite: func(pr *httputil.ProxyRequest) {
			// ReverseProxy drops these; the gateway made them and is to be believed.
			for _, h := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if v, ok := pr.In.Header[h]; ok {
					pr.Out.Header[h] = v
				}
			}
			prepare(pr.Out)
		},
		ModifyResponse: func(*http.Response) error {
			answered = true
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			failure = explain(err)
		},
	}
	func() {
		// ReverseProxy panics when the answer breaks off midway.
		defer func() {
			if e := recover(); e != nil {
				if e != http.ErrAbortHandler {
					panic(e)
				}
				failure = errAnswered
			}
		}()
		rp.ServeHTTP(w, r.WithContext(ctx))
	}()
	if failure != nil && answered {
		return errAnswered
	}
	return failure
}
