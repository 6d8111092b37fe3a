package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	// functionDialTimeout: the function is on this node and has just been ready.
	functionDialTimeout = 2 * time.Second
	// fieldRequestTimeout is the manifest's field that bounds a request.
	fieldRequestTimeout = "spec.template.spec.timeoutSeconds"
)

// ownHeaders begins the project's headers, in the canonical form of http.Header's keys.
var ownHeaders = http.CanonicalHeaderKey(filterapi.HeaderPrefix)

// protocolH2 is what HeaderProtocol says of a request for a function that speaks HTTP/2.
const protocolH2 = "h2"

// speaksH2 tells whether the function of a request speaks HTTP/2. A gateway talks to the daemon
// as it talks to the function itself: both are endpoints of one cluster.
func speaksH2(r *http.Request) bool {
	return r.ProtoMajor == 2 || r.TLS != nil && r.Header.Get(filterapi.HeaderProtocol) == protocolH2
}

// forward hands the request to an instance of this node, and its answer to the caller. files
// are the names of the inputs that the function sees as files.
func (in *Ingress) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, instance string,
	at sandboxes.Endpoint, files []string,
) error {
	timeout := p.function.GetRequestTimeout().AsDuration()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := target{instance: instance, via: in.functionSide.For(speaksH2(r)), closes: true, address: at.Address.String(), files: files,
		explain: functionFailed}
	switch {
	case at.MeshSNI != "" && in.config.Mesh == nil:
		return errors.New("the instance is in a mesh, and the node's daemon is not")
	case at.MeshSNI != "":
		to.via = in.config.Mesh.Transport(at.MeshSNI, speaksH2(r))
	case !speaksH2(r) && (isOwn(w) || p.function.GetOneAtATime()): // gateways, which keep a connection for all others, see none of these
		to.via, to.closes = in.kept, false
	}
	return in.send(ctx, w, r, p, to)
}

// target is who gets a request that is delivered.
type target struct {
	// instance is one of this node's; empty: it is none.
	instance string
	via      http.RoundTripper
	address  string
	// closes: each request has a connection of its own.
	closes bool
	// header is set on the request, over what it has.
	header map[string]string
	// files are the names of the inputs that are files in the function's sandbox.
	files []string
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
	body, err := p.stored.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.close()
	for _, one := range p.stored {
		if isBody := one.name == "" && body.reader != nil; !isBody && !slices.Contains(to.files, one.name) {
			trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNoFile))
		}
	}
	explain := func(err error, midway bool) error {
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return source.Because(problem.New(http.StatusGatewayTimeout, problem.ReasonFunctionTimeout, fieldRequestTimeout,
				fmt.Sprintf("the function did not finish its answer within %s", p.function.GetRequestTimeout().AsDuration())), err)
		case body.reader != nil && !midway && p.stored.failed() != nil:
			return source.Because(problem.Of(p.stored.failed()), err)
		}
		return source.Because(to.explain(err, midway), err)
	}
	return proxy.Send(httptrace.WithClientTrace(ctx, phases.trace()), w, r, proxy.Hop{
		Via:  to.via,
		Body: p.body,
		Prepare: func(out *http.Request) {
			for h := range out.Header {
				if strings.HasPrefix(h, ownHeaders) {
					delete(out.Header, h)
				}
			}
			out.URL.Scheme, out.URL.Host = "http", to.address
			out.Close = to.closes && mayClose(p, body)
			for name, value := range to.header {
				out.Header.Set(name, value)
			}
			out.Header.Set(filterapi.HeaderRequest, p.id)
			setDepth(out.Header, p.depth)
			setOrNone(out.Header, filterapi.HeaderCaller, p.caller)
			tracing.Inject(phases.ctx, out.Header)
			if slices.Contains(to.files, "") {
				out.Header.Set(filterapi.HeaderInputFile, staging.Path("", p.id))
			}
			body.attach(out)
		},
		Accept: func(res *http.Response) error {
			if l, ok := readLoad(res.Header); ok && to.instance != "" {
				in.tally.heard(p.function.GetName(), to.instance, l)
			}
			return p.accept(res)
		},
		Explain: func(err error, midway bool) error { return unlessDelivered(err, explain(err, midway)) },
	})
}

// accept makes an answer this node's.
func (p *parked) accept(res *http.Response) error {
	res.Header.Del(filterapi.HeaderUndelivered)
	res.Header.Set(filterapi.HeaderRequest, p.id)
	return nil
}

func functionFailed(err error, midway bool) *problem.Problem {
	return problem.New(
		http.StatusBadGateway, problem.ReasonFunctionFailed, "", "the function's program "+failure(err, midway),
	)
}

// failure says what the other side did; midway: of its answer.
func failure(err error, midway bool) string {
	if proxy.IsDial(err) {
		return "takes no connections"
	}
	if midway {
		return "broke its answer off"
	}
	return "closed the connection without a valid answer"
}

// mayClose tells whether the function is told that the connection ends with its answer.
// Programs in Go take that for leave to close it under a body that they have not read, and
// their answer is lost with it: who takes the input as a file or by the socket does not read
// it. Without it they read some of the body before they answer, which must be there then.
func mayClose(p *parked, stored inputBody) bool {
	there := p.received != nil && !p.received.Ended().IsZero()
	return stored.reader == nil && !there
}
