package trace

import (
	"context"
	"fmt"
	"io"
	"net"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// tlsHandshake is the first byte of a connection by TLS (RFC 8446, section 5.1). HTTP/2 begins with another.
const tlsHandshake = 0x16

// Credentials are for a collector's port to which nodes come by mutual TLS, and gateways, which have no
// certificate of ours, without.
func Credentials(mutual credentials.TransportCredentials) credentials.TransportCredentials {
	return either{mutual, insecure.NewCredentials()}
}

type either struct {
	credentials.TransportCredentials // mutual TLS
	plain                            credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials. The server bounds its time.
func (e either) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &begun{Conn: raw, first: make([]byte, 1)}
	if _, err := io.ReadFull(raw, c.first); err != nil {
		return nil, nil, fmt.Errorf("waiting for a caller's first byte: %w", err)
	}
	if c.first[0] == tlsHandshake {
		return e.TransportCredentials.ServerHandshake(c)
	}
	return e.plain.ServerHandshake(c)
}

// Clone implements credentials.TransportCredentials.
func (e either) Clone() credentials.TransportCredentials {
	return either{e.TransportCredentials.Clone(), e.plain.Clone()}
}

// begun is a connection of which the first byte has been read.
type begun struct {
	net.Conn
	first []byte
}

func (c *begun) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// nodes is a collector that believes a node what it may say.
type nodes struct {
	collectorpb.UnimplementedTraceServiceServer
	next collectorpb.TraceServiceServer
}

// Nodes returns a collector for next that takes from a node, which its certificate names, spans of the
// node's own programs only. Callers without a certificate are not known, and pass.
func Nodes(next collectorpb.TraceServiceServer) collectorpb.TraceServiceServer {
	return &nodes{next: next}
}

func (n *nodes) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	node, err := peertls.Peer(ctx)
	if err != nil {
		return n.next.Export(ctx, req)
	}
	own := &collectorpb.ExportTraceServiceRequest{}
	var refused int64
	for _, resource := range req.GetResourceSpans() {
		if !mayClaim(node, resource) {
			for _, scope := range resource.GetScopeSpans() {
				refused += int64(len(scope.GetSpans()))
			}
			continue
		}
		own.ResourceSpans = append(own.ResourceSpans, resource)
	}
	answer, err := n.next.Export(ctx, own)
	if refused > 0 && err == nil {
		refused += answer.GetPartialSuccess().GetRejectedSpans()
		answer = &collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{
			RejectedSpans: refused, ErrorMessage: "spans of another node, or of another program than a node has"}}
	}
	return answer, err
}

// mayClaim tells whether spans can be those of a node's daemon or shims, and name no other node.
func mayClaim(node string, r *tracepb.ResourceSpans) bool {
	if service := serviceOf(r.GetResource()); service != tracing.ServiceNode && service != tracing.ServiceShim {
		return false
	}
	for _, scope := range r.GetScopeSpans() {
		for _, span := range scope.GetSpans() {
			for _, kv := range span.GetAttributes() {
				if kv.GetKey() == string(tracing.Node) && kv.GetValue().GetStringValue() != node {
					return false
				}
			}
		}
	}
	return true
}
