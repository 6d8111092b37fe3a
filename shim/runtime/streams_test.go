package runtime_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// serveStreams converses with shims beside the daemon's socket.
func serveStreams(t *testing.T, socket string, h *streams.Hub) {
	t.Helper()
	l, err := net.Listen("unixpacket", streams.Path(socket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- h.Serve(ctx)(l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func withConnections(spec map[string]any) {
	withoutS3(spec)
	spec["annotations"].(map[string]string)["headstart.dev/connections"] = "orders"
}

// The containers of a pod that are told of streams have one conversation, in the pod's network, from the first one to the
// end of the last one.
func TestStreamsOfASandbox(t *testing.T) {
	errDialled := errors.New("dialled")
	asked := make(chan bool, 8)
	socket := daemonSocket(t, func(_ context.Context, q *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
		asked <- q.GetConnections()
		return &nodeapi.DescribeResponse{Streams: q.GetSandbox() != "other"}, nil
	})
	h := streams.NewHub(slog.New(slog.DiscardHandler))
	serveStreams(t, socket, h)
	s := newService(&runc{}, socket, "test")
	t.Cleanup(func() { s.Close(context.Background()) })
	s.DialsBy(func(namespace string) streams.Dial {
		return func(context.Context, netip.AddrPort) (net.Conn, error) {
			return nil, errors.Join(errDialled, errors.New(namespace))
		}
	})
	create := func(id string, change func(map[string]any)) {
		t.Helper()
		if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: id, Bundle: bundle(t, s3Config(t, change))}); err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got != (change != nil) {
			t.Errorf("%s: connections are %v", id, got)
		}
	}
	remove := func(id string) {
		t.Helper()
		if _, err := s.Delete(t.Context(), &taskAPI.DeleteRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	at := netip.MustParseAddrPort("10.0.0.3:5432")
	dial := func(sandbox string, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := h.Dial(ctx, sandbox, at)
		return err
	}
	const pod = "default_fire-x_u-1"
	create("other", nil)
	create("a", withConnections)
	if err := dial(pod, time.Minute); err == nil || !strings.Contains(err.Error(), "dialled\n/run/netns/fire") {
		t.Errorf("dialling says %v", err)
	}
	create("b", withConnections)
	remove("a")
	if err := dial(pod, time.Minute); err == nil || errors.Is(err, streams.ErrNoShim) {
		t.Errorf("with one of two containers: %v", err)
	}
	remove("other")
	remove("b")
	for end := time.Now().Add(time.Minute); !errors.Is(dial(pod, time.Millisecond), streams.ErrNoShim); {
		if time.Now().After(end) {
			t.Fatal("without containers: the shim is there")
		}
	}
	for id, change := range map[string]func(map[string]any){"node": onHostNetwork, "path": onHostNetworkByPath} {
		create(id, func(spec map[string]any) {
			withConnections(spec)
			spec["annotations"] = map[string]string{"headstart.dev/connections": "orders"}
			change(spec)
		})
		if err := dial(id, time.Minute); err == nil || !strings.Contains(err.Error(), "no network namespace") {
			t.Errorf("in the node's network: %v", err)
		}
	}
}
