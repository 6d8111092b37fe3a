package peers

import (
	"context"
	"errors"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// asked marks the context of what is done for another node's question.
type asked struct{}

// Written implements writeback.Holders, for markers that name a member of the site.
func (p *Peers) Written(ctx context.Context, k writeback.Key, m writeback.Marker, held string, begin source.Begin,
	instead func(context.Context, source.Begin) error,
) error {
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: k.Bucket, Key: k.Key}.String()
	in := &intake{key: objects.Key{Store: k.Store, Reference: ref}, begin: begin, exact: true,
		object: source.Object{Size: m.Size, Version: m.Tag}}
	err := p.fromWriter(ctx, m.Node, question{Namespace: fair.Of(ctx), Store: k.Store, Reference: ref, Held: held,
		Version: m.Tag, Write: m.ID, Only: true}, in)
	_, same := errors.AsType[*source.Unchanged](err)
	if err == nil || same || in.fatal != nil || errors.Is(err, errMayNotAsk) {
		return err
	}
	return in.finish(ctx, instead)
}

// fromWriter asks the node that has a write.
func (p *Peers) fromWriter(ctx context.Context, node string, q question, in *intake) error {
	if len(p.askable([]string{node})) == 0 {
		return errHasNone
	}
	if p.pass(q.Namespace) == "" {
		if ctx.Value(asked{}) != nil {
			return errMayNotAsk // who asks this node may ask the other one, and need not wait
		}
		return notAllowed("the node has no pass for the namespace")
	}
	leave, err := p.writes.Wait(ctx) // as in fromPeers
	if err != nil {
		return err
	}
	defer leave()
	room := rooms.Get().(*[frameBlockMost]byte) // the pool has no others
	defer rooms.Put(room)
	in.room = room[:]
	return p.take(ctx, node, nil, q, in)
}
