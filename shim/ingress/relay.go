package ingress

import (
	"context"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// relayDialTimeout: a relay is a service of the cluster, that is there all the time.
const relayDialTimeout = 5 * time.Second

// relay sends the request to where another autoscaler takes requests while it starts the
// function. Nobody here knows when that is; so the request goes at once, and its input
// follows as it arrives. A fetch that fails on the way breaks the request off.
func (in *Ingress) relay(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, bound *nodeapi.Bound) error {
	if err := in.sized(ctx, p); err != nil {
		return err
	}
	p.begun()
	// Without headers it is the instance itself, whose node's daemon is away.
	headers, explain := bound.GetRelayHeaders(), functionFailed
	if len(headers) > 0 {
		explain = relayFailed
	}
	// The cold start is part of the other side's answer.
	ctx, cancel := context.WithDeadline(ctx, p.deadline.Add(p.function.GetRequestTimeout().AsDuration()))
	defer cancel()
	return in.send(ctx, w, r, p, target{via: in.relaySide.For(speaksH2(r)), closes: true, address: bound.GetRelayAddress(),
		header: headers, relay: len(headers) > 0, explain: explain})
}

func relayFailed(err error, midway bool) *problem.Problem {
	return problem.New(
		http.StatusBadGateway, problem.ReasonRelayFailed, "",
		"the autoscaler that starts the function "+failure(err, midway),
	)
}
