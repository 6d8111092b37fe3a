package node

import (
	"context"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Spans passes spans of the node's shims on: they run outside of the cluster's network,
// where the collector's name means nothing.
type Spans struct {
	coltracepb.UnimplementedTraceServiceServer
	Collector coltracepb.TraceServiceClient
}

// spansTimeout is how long spans wait for a collector that is being replaced. A shim has less
// time to wait for the answer.
const spansTimeout = 10 * time.Second

// Export implements coltracepb.TraceServiceServer. It goes on when the shim has gone.
func (s Spans) Export(ctx context.Context, r *coltracepb.ExportTraceServiceRequest,
) (*coltracepb.ExportTraceServiceResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spansTimeout)
	defer cancel()
	return s.Collector.Export(ctx, r, grpc.WaitForReady(true))
}
