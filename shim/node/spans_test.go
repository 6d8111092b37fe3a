package node_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/shim/node"
)

// collecting hands over what it gets.
type collecting struct {
	coltracepb.UnimplementedTraceServiceServer
	got chan *coltracepb.ExportTraceServiceRequest
}

func (c collecting) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (
	*coltracepb.ExportTraceServiceResponse, error,
) {
	c.got <- r
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// A shim that has gone, and a control plane that is just being replaced, cost no spans.
func TestSpansOfShimsWaitForTheCollector(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "otlp.sock")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	answered := make(chan error, 1)
	go func() {
		_, err := node.Spans{Collector: coltracepb.NewTraceServiceClient(conn)}.Export(
			gone, &coltracepb.ExportTraceServiceRequest{},
		)
		answered <- err
	}()
	for state := conn.GetState(); state != connectivity.TransientFailure && conn.WaitForStateChange(t.Context(), state); {
		state = conn.GetState()
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := collecting{got: make(chan *coltracepb.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := <-answered; err != nil {
		t.Error(err)
	} else {
		<-c.got
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
