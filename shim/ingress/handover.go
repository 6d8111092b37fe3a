package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// peerFirst is how much later than the instance's node this one gives up: the other
// knows better what went wrong. With deliveryGrace it is less than the 5 s that the
// gateway waits longer still.
const peerFirst = 2 * time.Second

// handOver sends the request to the daemon of the instance's node, which fetches a stored
// input by itself: over there the way from the store is as short as it can be. A body in the
// buffer follows as it comes, and stays here until the request is over: should that node be
// gone before the delivery, another one gets it from its start.
func (in *Ingress) handOver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked,
	bound *nodeapi.Bound,
) (err error) {
	in.release(ctx, p)
	p.begun()
	refs := p.references()
	ctx, cancel := context.WithDeadline(ctx, p.deadline.Add(p.function.GetRequestTimeout().AsDuration()+peerFirst))
	defer cancel()
	ctx, span := tracer.Start(ctx, tracing.Transfer, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.TransferKind.String(tracing.TransferPeer)))
	// The transfer is over when the other node has what it needs to begin: the head.
	head := sync.OnceFunc(func() { span.End() })
	defer func() { endSpan(span, err) }()
	var there progress
	watch := &httptrace.ClientTrace{WroteHeaders: head, Got1xxResponse: there.heard}
	explain := func(err error, midway bool) error {
		node := "the daemon of the instance's node " + bound.GetNode()
		switch {
		case isUndelivered(err): // it has handed the request back
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return source.Because(
				problem.New(http.StatusGatewayTimeout, "PeerTimeout", "", node+" did not answer in time"), err,
			)
		case midway: // it knows why, unless it is gone, which the control plane sees
			return reported{source.Because(problem.New(http.StatusBadGateway, problem.ReasonPeerFailed, "",
				node+" broke its answer off; it has died, or an event of the function's says why"), err)}
		}
		if _, own := errors.AsType[*problem.Problem](err); own { // this node's buffer has lost the body
			return err
		}
		unreachable := source.Because(
			problem.New(http.StatusBadGateway, problem.ReasonPeerUnreachable, "", node+" did not answer"), err,
		)
		if there.undelivered(err) {
			return undelivered{unreachable}
		}
		return unreachable
	}
	return proxy.Send(httptrace.WithClientTrace(ctx, watch), w, r, proxy.Hop{
		Via:   in.config.Peers,
		Body:  p.body,
		Paced: true,
		Prepare: func(out *http.Request) {
			out.URL.Scheme, out.URL.Host = "https", proxy.PeerHost(bound.GetNode(), bound.GetPeerAddress())
			// Set anew: a client's Connection header can name any of them for removal.
			out.Header.Set(filterapi.HeaderRequest, p.id)
			out.Header.Set(filterapi.HeaderFunction, p.function.GetName())
			out.Header.Set(filterapi.HeaderInstance, bound.GetInstance())
			out.Header.Set(filterapi.HeaderWaited, strconv.FormatInt(time.Since(p.began).Milliseconds(), 10))
			setOrNone(out.Header, filterapi.HeaderInput, refs[""])
			setOrNone(out.Header, filterapi.HeaderInputs, refs.String())
			setOrNone(out.Header, filterapi.HeaderCaller, p.caller)
			setOrNone(out.Header, filterapi.HeaderCapability, bound.GetCapability())
			setDepth(out.Header, p.depth)
			out.Header.Del(filterapi.HeaderProtocol)
			if speaksH2(r) {
				out.Header.Set(filterapi.HeaderProtocol, protocolH2)
			}
			out.Header.Del(filterapi.HeaderProgress)
			if out.Header.Get("Expect") == "" { // another word before the answer
				out.Header.Set(filterapi.HeaderProgress, progressAsked)
				there.asked = true
			}
			tracing.Inject(ctx, out.Header)
		},
		Accept: func(res *http.Response) error {
			if res.Header.Get(filterapi.HeaderUndelivered) != "" {
				return handedBack(res)
			}
			return p.accept(res)
		},
		Explain: func(err error, midway bool) error { return unlessDelivered(err, explain(err, midway)) },
	})
}

// setOrNone sets a header, or has none of it.
func setOrNone(h http.Header, name, value string) {
	h.Del(name)
	if value != "" {
		h.Set(name, value)
	}
}

// waitedElsewhere is for how long a request that is handed over has waited before, which the other
// node's clock has measured: one deadline is for all nodes that a request comes by. An older daemon
// does not say, and nothing more is waited for than without it.
func waitedElsewhere(h http.Header) time.Duration {
	ms, err := strconv.ParseUint(h.Get(filterapi.HeaderWaited), 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
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
	if !problem.IsTitle(p.Title) {
		return errors.New("a request is handed back without a reason")
	}
	p.Status = res.StatusCode // whatever it says
	return undelivered{reported{&p}}
}
