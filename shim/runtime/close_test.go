package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/runtime/gate"
)

// Before the program of a sandbox that is to be closed starts, its network is, and the daemon has heard whether it could be. While the container is made its
// network is made, too.
func TestTheNetworkIsClosed(t *testing.T) {
	network := filepath.Join(directory(t), "net")
	if err := os.WriteFile(network, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const config = `{"process":{"env":[],"capabilities":{"bounding":["CAP_CHOWN","CAP_NET_RAW"]}},%s"linux":{"namespaces":[{"type":"network","path":%q}]}}`
	volume := `"mounts":[{"type":"bind","source":"/a","destination":"/shared","options":["rw"]}],`
	for name, tt := range map[string]struct {
		config string
		fails  error
		open   string
		raw    bool
	}{
		"closed":                {fmt.Sprintf(config, "", network), nil, "", false},
		"the kernel refuses":    {fmt.Sprintf(config, "", network), errors.New("no rules here"), "no rules here", false},
		"a volume":              {fmt.Sprintf(config, volume, network), nil, "/shared", true},
		"on the node's network": {fmt.Sprintf(config, "", "/proc/self/ns/net"), nil, "hostNetwork", true},
	} {
		t.Run(name, func(t *testing.T) {
			inner, heard, closed := &runc{}, make(chan *nodeapi.ClosedRequest, 1), ""
			socket := serve(t, func(s *grpc.Server) {
				nodeapi.RegisterSandboxesServer(s, daemon{describe: answer(&nodeapi.DescribeResponse{Gate: &nodeapi.Gate{Port: 8080, Callers: []string{"10.0.0.7"}}}), closed: heard})
			})
			s := newService(inner, socket, "1")
			defer s.Close(t.Context())
			s.ClosesBy(func(namespace string, r gate.Rules) error {
				closed = namespace
				if r.Port != 8080 || !slices.Equal(r.Callers, []netip.Addr{netip.MustParseAddr("10.0.0.7")}) {
					t.Errorf("by the rules %+v", r)
				}
				return tt.fails
			})
			if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, tt.config)}); err != nil {
				t.Fatal(err)
			}
			if len(heard) != 0 && tt.open == "" || closed != "" {
				t.Errorf("the network %q is closed while it is made", closed)
			}
			if _, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"}); err != nil {
				t.Fatal(err)
			}
			select {
			case r := <-heard:
				if r.GetSandbox() != "a" || !strings.Contains(r.GetOpen(), tt.open) || (r.GetOpen() == "") != (tt.open == "") {
					t.Errorf("told %v, want %q", r, tt.open)
				}
			default:
				t.Error("the daemon hears nothing before the program starts")
			}
			if raw := strings.Contains(inner.config, "CAP_NET_RAW"); raw != tt.raw {
				t.Errorf("made with %s", inner.config)
			}
			if want := !tt.raw; (closed == network) != want {
				t.Errorf("the network %q is closed", closed)
			}
		})
	}
}

// While daemons of two pods are there, both may ask a program whose sandbox is closed. Each can have it ended.
func TestDaemonsAskAClosedSandbox(t *testing.T) {
	network := filepath.Join(directory(t), "net")
	if err := os.WriteFile(network, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inner := &runc{killed: make(chan *taskAPI.KillRequest, 1)}
	socket := serve(t, func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{describe: answer(&nodeapi.DescribeResponse{Streams: true, Gate: &nodeapi.Gate{Port: 80, Callers: []string{"10.0.0.7"}}}),
			closed: make(chan *nodeapi.ClosedRequest, 1)})
	})
	s := newService(inner, socket, "1")
	defer s.Close(t.Context())
	rules := make(chan []netip.Addr, 8)
	s.ClosesBy(func(_ string, r gate.Rules) error { rules <- slices.Clone(r.Callers); return nil })
	if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, fmt.Sprintf(`{"process":{},"linux":{"namespaces":[{"type":"network","path":%q}]}}`, network))}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	want := func(callers ...string) {
		t.Helper()
		got := <-rules
		slices.SortFunc(got, netip.Addr.Compare)
		if text := fmt.Sprint(got); text != fmt.Sprint(callers) {
			t.Errorf("asked from %s, want %v", text, callers)
		}
	}
	want("10.0.0.7")
	one := hubAt(t, socket, "10.0.0.7")
	want("10.0.0.7")
	hubAt(t, socket, "10.0.0.9")
	want("10.0.0.7", "10.0.0.9")
	if err := one.Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if r := <-inner.killed; r.ID != "a" || r.Signal != 9 || !r.All {
		t.Errorf("killed by %v", r)
	}
}

// A container that is made again without a gate has the network that others have, and so has one that the daemon has opened. Another
// container of the pod changes nothing.
func TestAClosedSandboxIsOpened(t *testing.T) {
	described := &nodeapi.DescribeResponse{Streams: true, Gate: &nodeapi.Gate{Port: 80}}
	socket := serve(t, func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{closed: make(chan *nodeapi.ClosedRequest, 8),
			describe: func(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				if r.GetPod().GetContainer() != "fire" {
					return &nodeapi.DescribeResponse{}, nil
				}
				return described, nil
			}})
	})
	s := newService(&runc{}, socket, "1")
	defer s.Close(t.Context())
	closed, opened := 0, make(chan string, 8)
	s.ClosesBy(func(string, gate.Rules) error { closed++; return nil })
	s.OpensBy(func(namespace string) error { opened <- namespace; return nil })
	made := func(id, container string) {
		t.Helper()
		config := s3Config(t, func(spec map[string]any) {
			withoutS3(spec)
			spec["annotations"].(map[string]string)["io.kubernetes.cri.container-name"] = container
		})
		if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: id, Bundle: bundle(t, config)}); err != nil {
			t.Fatal(err)
		}
	}
	made("a", "fire")
	made("b", "istio-proxy")
	if closed != 1 || len(opened) != 0 {
		t.Fatalf("closed %d times, opened %d times", closed, len(opened))
	}
	if _, err := s.Delete(t.Context(), &taskAPI.DeleteRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	was := described
	described = &nodeapi.DescribeResponse{}
	made("c", "fire")
	if len(opened) != 1 || <-opened != "/run/netns/fire" {
		t.Fatalf("it is not opened, %d times", len(opened))
	}
	described = was
	made("d", "fire")
	if err := hubAt(t, socket, "10.0.0.7").Open(t.Context(), "default_fire-x_u-1"); err != nil {
		t.Fatal(err)
	}
	<-opened
}

// hubAt has a daemon's side of streams at the socket of before, in place of an earlier one's.
func hubAt(t *testing.T, socket, caller string) *streams.Hub {
	t.Helper()
	h := streams.NewHub(slog.New(slog.DiscardHandler))
	h.Callers = []netip.Addr{netip.MustParseAddr(caller)}
	_ = os.Remove(streams.Path(socket)) // the first one has none before it
	serveStreams(t, socket, h)
	return h
}
