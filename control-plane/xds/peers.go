package xds

import (
	"context"
	"log/slog"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// peers are the other ends of discovery streams, each of which may only speak for its
// own node.
type peers struct {
	kind   string // what a peer is, in logs
	verify func(ctx context.Context, nodeID string) error
	log    *slog.Logger

	mu      sync.Mutex
	streams map[int64]*caller
}

// caller is one stream's other end; id is empty until it is verified. Only the stream's
// own goroutine uses it.
type caller struct {
	ctx context.Context
	id  string
}

func newPeers(kind string, verify func(context.Context, string) error, logger *slog.Logger) *peers {
	return &peers{kind: kind, verify: verify, log: logger, streams: map[int64]*caller{}}
}

func (p *peers) open(ctx context.Context, stream int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[stream] = &caller{ctx: ctx}
}

func (p *peers) close(stream int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := p.streams[stream].id; id != "" {
		p.log.Info(p.kind+" disconnected", p.kind, id)
	}
	delete(p.streams, stream)
}

// identify returns whose stream it is. The first request says so, and later ones must
// not say otherwise.
func (p *peers) identify(stream int64, node *core.Node) (id string, first bool, err error) {
	p.mu.Lock()
	c := p.streams[stream]
	p.mu.Unlock()
	if c.id != "" {
		if node != nil && node.GetId() != c.id {
			return "", false, status.Error(codes.PermissionDenied, "the node's id changed")
		}
		return c.id, false, nil
	}
	if err := p.check(c.ctx, node); err != nil {
		return "", false, err
	}
	c.id = node.GetId()
	p.log.Info(p.kind+" connected", p.kind, c.id)
	return c.id, true, nil
}

// check returns why the peer of ctx may not speak for a node, as a gRPC status.
func (p *peers) check(ctx context.Context, node *core.Node) error {
	if node.GetId() == "" {
		return status.Error(codes.InvalidArgument, "the first request names no node")
	}
	if err := p.verify(ctx, node.GetId()); err != nil {
		p.log.Warn(p.kind+" refused", p.kind, node.GetId(), "error", err)
		return status.Error(codes.PermissionDenied, "the peer may not speak for this node")
	}
	return nil
}
