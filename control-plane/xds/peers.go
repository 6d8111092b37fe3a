package xds

import (
	"context"
	"log/slog"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// peers are the other ends of streams, each of which may only speak for its own node.
type peers struct {
	kind   string // what a peer is, in logs
	verify func(ctx context.Context, nodeID string) error
	log    *slog.Logger
}

// caller is one stream's other end; id is empty until it is verified. Only the stream's own
// goroutine uses it.
type caller struct {
	of  *peers
	ctx context.Context
	id  string
}

func (p *peers) open(ctx context.Context) *caller { return &caller{of: p, ctx: ctx} }

func (c *caller) close() {
	if c.id != "" {
		c.of.log.Info(c.of.kind+" disconnected", c.of.kind, c.id)
	}
}

// identify learns whose stream it is. The first request says so, and later ones must not
// say otherwise.
func (c *caller) identify(node *core.Node) (first bool, err error) {
	if c.id != "" {
		if node != nil && node.GetId() != c.id {
			return false, status.Error(codes.PermissionDenied, "the node's id changed")
		}
		return false, nil
	}
	if err := c.of.check(c.ctx, node); err != nil {
		return false, err
	}
	c.id = node.GetId()
	c.of.log.Info(c.of.kind+" connected", c.of.kind, c.id)
	return true, nil
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
