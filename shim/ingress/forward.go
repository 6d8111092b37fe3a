package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

const (
	// functionDialTimeout: the function is on this node and has just been ready.
	functionDialTimeout = 2 * time.Second
	// continueTimeout is how long a request with Expect: 100-continue waits for the
	// function's word before its body is sent anyway; many programs never say it.
	continueTimeout = time.Second
	// answerHeadLimit bounds an answer's headers, in bytes: as many as Envoy takes.
	answerHeadLimit = 60 << 10

	// fieldRequestTimeout is the manifest's field that bounds a request.
	fieldRequestTimeout = "spec.template.spec.timeoutSeconds"
)

// newFunctionTransport keeps no connections: one over the node's own bridge takes some
// ten microseconds, while a kept one may be closed by the function just as the next
// request is written, and what is no GET cannot be sent twice.
func newFunctionTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: functionDialTimeout}).DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true, // the answer is the client's, as the function wrote it
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: answerHeadLimit,
		WriteBufferSize:        128 << 10,
	}
}

// forward hands the request to the function and its answer to the caller.
func (in *Ingress) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, addr netip.AddrPort) (err error) {
	timeout := p.function.GetRequestTimeout().AsDuration()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	phases := newPhases(ctx)
	defer func() { phases.end(err) }()
	body, err := openBody(ctx, r, p)
	if err != nil {
		return err
	}
	defer body.close()
	return in.proxy(httptrace.WithClientTrace(ctx, phases.trace()), w, r, relay{
		id:  p.id,
		via: in.functionSide,
		prepare: func(out *http.Request) {
			for h := range out.Header {
				if strings.HasPrefix(h, headerPrefix) {
					delete(out.Header, h)
				}
			}
			out.URL.Scheme, out.URL.Host = "http", addr.String()
			out.Header.Set(headerRequest, p.id)
			propagation.TraceContext{}.Inject(phases.ctx, propagation.HeaderCarrier(out.Header))
			if p.input != nil {
				out.Header.Set(headerInputFile, instance.InputMount+"/"+p.id)
			}
			body.attach(out)
		},
		explain: func(err error, midway bool) error {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return because(problem.New(http.StatusGatewayTimeout, "FunctionTimeout", fieldRequestTimeout,
					fmt.Sprintf("the function did not finish its answer within %s", timeout)), err)
			}
			what := "closed the connection without a valid answer"
			if dial, is := errors.AsType[*net.OpError](err); is && dial.Op == "dial" {
				what = "takes no connections"
			} else if midway {
				what = "broke its answer off"
			}
			return because(problem.New(http.StatusBadGateway, "FunctionFailed", "", "the function's program "+what), err)
		},
	})
}

// because adds what only the log should tell to a problem.
func because(p *problem.Problem, cause error) error { return fmt.Errorf("%w: %w", p, cause) }

// inputBody is a stored input that takes the place of a request's empty body. Its zero
// value leaves the request as it is.
type inputBody struct {
	object source.Object
	reader io.ReadCloser // nil: none
}

// openBody decides whether the request gets the input as its body. One that has a body
// keeps it, and one that switches to another protocol must have none: they get the
// input as a file only.
func openBody(ctx context.Context, r *http.Request, p *parked) (b inputBody, err error) {
	if p.input == nil || r.ContentLength != 0 || r.Header.Get("Upgrade") != "" {
		return b, nil
	}
	if b.object, err = p.input.Object(ctx); err != nil {
		return b, err
	}
	b.reader, err = p.input.NewReader(ctx)
	return b, err
}

func (b inputBody) attach(out *http.Request) {
	if b.reader == nil {
		return
	}
	out.Body, out.ContentLength = b.reader, b.object.Size
	if b.object.Size == 0 {
		out.Body = http.NoBody
	}
	if out.Header.Get("Content-Type") == "" && b.object.ContentType != "" {
		out.Header.Set("Content-Type", b.object.ContentType)
	}
}

func (b inputBody) close() {
	if b.reader != nil {
		_ = b.reader.Close() // it was only read from
	}
}
