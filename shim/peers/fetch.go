package peers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// fetchesMost is how many objects come from peers at a time, and writesMost how many writes that the store does not have
// yet; namespaces share each. Each has at most one block in memory until it is checked, and windowMost of the next ones:
// 96 MiB in all. All have room in a connection, so those that go slowly hold up no others.
const fetchesMost, writesMost = 20, 4

// rooms are for blocks until they are checked.
var rooms = sync.Pool{New: func() any { return new([frameBlockMost]byte) }}

// Fetch implements objects.Neighbours: it writes the present version of an object to what begin returns. The bytes come
// from the owner, or from nodes that the owner refers to. If they do not have it in time, store is asked; bytes that
// have come already are not written twice. A problem of the store is returned as those nodes tell it: see isVerdict.
func (p *Peers) Fetch(ctx context.Context, k objects.Key, held string, begin source.Begin,
	store func(context.Context, source.Begin) error,
) error {
	in := &intake{key: k, begin: begin}
	answered, err := p.fromPeers(ctx, question{Namespace: fair.Of(ctx), Store: k.Store, Reference: k.Reference, Held: held}, in)
	if in.fatal != nil {
		return in.fatal
	}
	from := "peer"
	if !answered {
		if from = "store"; in.at > 0 {
			from = "both"
		}
		err = in.finish(ctx, store)
	}
	p.metrics.fetches.WithLabelValues(from).Inc()
	return err
}

// fromPeers asks the choices for the object that are not this node, as long as it is not the owner itself. If they have
// answered, err is the answer: nil for the object, a *source.Unchanged, or the store's problem.
func (p *Peers) fromPeers(ctx context.Context, q question, in *intake) (answered bool, err error) {
	choices := p.choices(in.key)
	if i := slices.Index(choices, p.config.Node); i >= 0 {
		choices = choices[:i]
	}
	if p.pass(q.Namespace) == "" || len(choices) == 0 {
		return false, nil
	}
	leave, err := p.fetching.Wait(ctx) // before anybody is asked: what comes then is read
	if err != nil {
		return false, err
	}
	defer leave()
	room := rooms.Get().(*[frameBlockMost]byte) // the pool has no others
	defer rooms.Put(room)
	in.room = room[:]
	var before error
	for _, node := range p.askable(choices) {
		err := p.take(ctx, node, nil, q, in)
		if in.fatal != nil || ctx.Err() != nil {
			return false, err
		}
		if _, same := errors.AsType[*source.Unchanged](err); err == nil || same || isVerdict(err, before) {
			return true, err
		}
		if problem.Of(err).Title == errMayNotAsk.Title {
			break // the other choice hardly may, and this node may
		}
		before = err
	}
	return false, before
}

// isVerdict tells whether a peer has said what the store says, so that nobody need ask it again: there is no such object,
// or both choices find the store to fail in the same way. One alone may itself be what fails.
func isVerdict(err, before error) bool {
	said, is := errors.AsType[*problem.Problem](err)
	if !is {
		return false
	}
	earlier, twice := errors.AsType[*problem.Problem](before)
	ofStore := said.Status == http.StatusBadGateway || said.Status == http.StatusGatewayTimeout
	return said.Title == string(problem.ReasonInputNotFound) || ofStore && twice && earlier.Title == said.Title
}
