package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/source"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// fieldRequestTimeout is the manifest's field that bounds a request.
const fieldRequestTimeout = "spec.template.spec.timeoutSeconds"

// ownHeaders begins the project's headers, in the canonical form of http.Header's keys.
var ownHeaders = http.CanonicalHeaderKey(filterapi.HeaderPrefix)

// forward hands the request to an instance of this node, and its answer to the caller. file
// tells whether the function sees the input as a file, too.
func (in *Ingress) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, instance string, at sandboxes.Endpoint, file bool) error {
	timeout := p.function.GetRequestTimeout().AsDuration()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := target{instance: instance, via: in.functionSide[protocol(r)], scheme: "http", address: at.Address.String(), file: file, explain: functionFailed}
	if at.MeshSNI != "" {
		if in.mesh == nil {
			return errors.New("the instance is in a mesh, and the node's daemon is not")
		}
		to.via = in.mesh.Transport(at.MeshSNI, protocol(r) == protocolH2)
	}
	return in.send(ctx, w, r, p, to)
}

// target is who gets a request that is delivered.
type target struct {
	// instance is one of this node's; empty: it is none.
	instance        string
	via             http.RoundTripper
	scheme, address string
	// header is set on the request, over what it has.
	header map[string]string
	// file tells whether the input is a file in the function's sandbox.
	file bool
	// relay: it is another autoscaler, which has yet to find, or to start, the function.
	relay bool
	// explain puts a failure of the other side into words; midway: of its answer.
	explain func(err error, midway bool) *problem.Problem
}

// send delivers the request, with its input as its body if it has none of its own, and
// passes the answer on. ctx ends with the request's timeout.
func (in *Ingress) send(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, to target) (err error) {
	phases := newPhases(ctx, to)
	defer func() { phases.end(err) }()
	body, err := openBody(ctx, r, p)
	if err != nil {
		return err
	}
	defer body.close()
	if p.input != nil && body.reader == nil && !to.file {
		trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNoFile))
	}
	return in.proxy(httptrace.WithClientTrace(ctx, phases.trace()), w, r, hop{
		id:   p.id,
		body: p.body,
		via:  to.via,
		heard: func(h http.Header) {
			if l, ok := readLoad(h); ok && to.instance != "" {
				in.tally.heard(p.function.GetName(), to.instance, l)
			}
		},
		prepare: func(out *http.Request) {
			for h := range out.Header {
				if strings.HasPrefix(h, ownHeaders) {
					delete(out.Header, h)
				}
			}
			out.URL.Scheme, out.URL.Host = to.scheme, to.address
			out.Close = mayClose(p, body)
			for name, value := range to.header {
				out.Header.Set(name, value)
			}
			out.Header.Set(filterapi.HeaderRequest, p.id)
			setDepth(out.Header, p.depth)
			tracing.Inject(phases.ctx, out.Header)
			if to.file {
				out.Header.Set(filterapi.HeaderInputFile, staging.Mount+"/"+p.id)
			}
			body.attach(out)
		},
		explain: func(err error, midway bool) error {
			switch {
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				return because(problem.New(http.StatusGatewayTimeout, "FunctionTimeout", fieldRequestTimeout,
					fmt.Sprintf("the function did not finish its answer within %s", p.function.GetRequestTimeout().AsDuration())), err)
			case body.reader != nil && !midway && inputFailed(p) != nil:
				return because(problem.Of(inputFailed(p)), err)
			}
			return because(to.explain(err, midway), err)
		},
	})
}

// inputFailed is why the request's input could not be fetched, nil if it could or still
// may. A request that waits for its input cannot have one.
func inputFailed(p *parked) error {
	if p.input.Ended().IsZero() {
		return nil
	}
	return p.input.Wait(context.Background()) // at once: it has ended
}

func functionFailed(err error, midway bool) *problem.Problem {
	return problem.New(http.StatusBadGateway, "FunctionFailed", "", "the function's program "+failure(err, midway))
}

// failure says what the other side did; midway: of its answer.
func failure(err error, midway bool) string {
	if isDial(err) {
		return "takes no connections"
	}
	if midway {
		return "broke its answer off"
	}
	return "closed the connection without a valid answer"
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

// mayClose tells whether the function is told that the connection ends with its answer.
// Programs in Go take that for leave to close it under a body that they have not read, and
// their answer is lost with it: who takes the input as a file or by the socket does not read
// it. Without it they read some of the body before they answer, which must be there then.
func mayClose(p *parked, stored inputBody) bool {
	there := p.body.input != nil && !p.body.input.Ended().IsZero()
	return stored.reader == nil && !there
}
