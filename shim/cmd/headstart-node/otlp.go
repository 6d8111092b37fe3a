package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// spans passes spans of the node's shims on: they run outside of the cluster's network,
// where the collector's name means nothing.
type spans struct {
	coltracepb.UnimplementedTraceServiceServer
	collector coltracepb.TraceServiceClient
}

// spansTimeout is how long spans wait for a collector that is being replaced. A shim has less
// time to wait for the answer.
const spansTimeout = 10 * time.Second

// Export implements coltracepb.TraceServiceServer. It goes on when the shim has gone.
func (s spans) Export(ctx context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spansTimeout)
	defer cancel()
	return s.collector.Export(ctx, r, grpc.WaitForReady(true))
}

// serveOTLP takes spans on otlp.sock until ctx ends.
func serveOTLP(ctx context.Context, g *errgroup.Group, c config) {
	conn, err := grpc.NewClient(c.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.Go(func() error { return fmt.Errorf("--otlp %q: %w", c.otlp, err) })
		return
	}
	shims := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(shims, spans{collector: coltracepb.NewTraceServiceClient(conn)})
	take := serve.GRPC(ctx, shims)
	serve.Go(g, serve.Unix(c.socket(otlpSocket)), func(l net.Listener) error { return errors.Join(take(l), conn.Close()) })
}

const otlpSocket = "otlp.sock"

// shimsOTLP is where shims send their spans, empty for nowhere.
func (c config) shimsOTLP() string {
	if c.otlp == "" {
		return ""
	}
	return "unix:" + c.socket(otlpSocket)
}
