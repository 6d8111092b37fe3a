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

// The containers of a pod that are told of streams have one conversation, in the pod's network, from the first one to
// the end of the last one.
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

// refusing is a runc that knows no listeners.
type refusing struct{ *runc }

func (r refusing) Create(ctx context.Context, q *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	res, err := r.runc.Create(ctx, q)
	if err == nil && strings.Contains(r.config, "SCMP_ACT_NOTIFY") {
		return nil, errRunc
	}
	return res, err
}

// A container whose connections cannot be asked about starts with all else that it is described with, and the daemon
// hears why.
func TestConnectUnavailable(t *testing.T) {
	withProfile := func(profile map[string]any) func(map[string]any) {
		return func(spec map[string]any) {
			withConnections(spec)
			if profile != nil {
				spec["linux"].(map[string]any)["seccomp"] = profile
			}
		}
	}
	for name, tt := range map[string]struct {
		profile map[string]any
		inner   func(*runc) taskAPI.TTRPCTaskService
		why     string
		times   int // that runc is called
	}{
		"a runc that cannot": {nil, func(r *runc) taskAPI.TTRPCTaskService { return refusing{r} }, errRunc.Error(), 2},
		"a profile with a listener": {map[string]any{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/own"},
			func(r *runc) taskAPI.TTRPCTaskService { return r }, "the seccomp profile has a listener of its own", 1},
	} {
		t.Run(name, func(t *testing.T) {
			socket := daemonSocket(t, answer(&nodeapi.DescribeResponse{Streams: true, Connect: true,
				Env: map[string]string{"HEADSTART_A": "1"}}))
			heard := make(chan string, 4)
			h := streams.NewHub(slog.New(slog.DiscardHandler))
			h.Lapse = func(sandbox, reason, why string) { heard <- sandbox + " " + reason + " " + why }
			serveStreams(t, socket, h)
			inner := &runc{}
			s := newService(tt.inner(inner), socket, "test")
			t.Cleanup(func() { s.Close(context.Background()) })
			ctx, hook := logged(t)
			dir := bundle(t, s3Config(t, withProfile(tt.profile)))
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: dir}); err != nil {
				t.Fatal(err)
			}
			if got, want := <-heard, "default_fire-x_u-1 ConnectUnavailable "+tt.why; got != want {
				t.Errorf("the daemon hears %q, want %q", got, want)
			}
			if entry := hook.LastEntry(); entry == nil || entry.Data["reason"] != "ConnectUnavailable" {
				t.Errorf("log entry %+v", entry)
			}
			if strings.Contains(inner.config, "NOTIFY") || !strings.Contains(inner.config, "HEADSTART_A=1") {
				t.Errorf("runc saw %s", inner.config)
			}
			if len(inner.calls) != tt.times {
				t.Errorf("runc is called %q", inner.calls)
			}
		})
	}
}

// A container that cannot be created at all is not there, and neither is its listener.
func TestConnectOfNoContainer(t *testing.T) {
	socket := daemonSocket(t, answer(&nodeapi.DescribeResponse{Streams: true, Connect: true}))
	inner := &runc{}
	s := newService(inner, socket, "test")
	t.Cleanup(func() { s.Close(context.Background()) })
	for range 2 {
		_, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "broken", Bundle: bundle(t, s3Config(t, withConnections))})
		if !errors.Is(err, errRunc) {
			t.Error(err)
		}
	}
	if len(inner.calls) != 4 {
		t.Errorf("runc is called %q", inner.calls)
	}
}
