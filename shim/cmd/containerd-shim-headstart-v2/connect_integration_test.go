//go:build integration

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// orders is an address that nobody is reached at but by the daemon.
var orders = netip.MustParseAddrPort("198.51.100.7:5432")

// routed is a network namespace with a loopback, to which all addresses lead: nobody answers for others.
func routed(t *testing.T) string {
	t.Helper()
	path := network(t)
	if err := nsthread.Run(path, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		return errors.Join(netlink.LinkSetUp(lo),
			netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK}))
	}); err != nil {
		t.Fatal(err)
	}
	return path
}

// saying is a server in a network that answers each connection with its name.
func saying(t *testing.T, network, name string) netip.AddrPort {
	t.Helper()
	var l net.Listener
	if err := nsthread.Run(network, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answering.Go(func() { answer(c, name) })
		}
	})
	t.Cleanup(func() { l.Close(); answering.Wait() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// answer says a name to who says something.
func answer(c net.Conn, name string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		io.WriteString(c, name)
	}
}

// connecting is a daemon that has connections to orders.
type connecting struct {
	*streams.Hub
	handed atomic.Int64
	late   bool // nothing is taken ahead
	lapses chan string
	stop   func()
}

func newConnecting(t *testing.T, n *node) *connecting {
	t.Helper()
	d := &connecting{Hub: streams.NewHub(slog.New(slog.DiscardHandler)), lapses: make(chan string, 8)}
	var answering sync.WaitGroup
	t.Cleanup(answering.Wait)
	d.Hub.Connect = func(_ context.Context, sandbox string, at netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if sandbox != "ours" || at != orders {
			t.Errorf("%s connects to %s", sandbox, at)
		}
		if ahead && d.late {
			return nil, nil
		}
		return func(program net.Conn) {
			if program == nil {
				return
			}
			d.handed.Add(1)
			answering.Go(func() { answer(program, "pooled") })
		}, nil
	}
	d.Hub.Lapse = func(_, reason, why string) { d.lapses <- reason + ": " + why }
	d.Targets("ours", []netip.AddrPort{orders})
	n.serve(t, "node.sock", func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{ours: &nodeapi.DescribeResponse{Streams: true, Connect: true}})
	})
	l, err := net.Listen("unixpacket", streams.Path(n.path("node.sock")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- d.Serve(ctx)(l) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

// program is a container's, in a network, with what Debian has.
func (n *node) program(t *testing.T, network string, opts []oci.SpecOpts, args ...string) *sandbox {
	t.Helper()
	rootfs := n.path("rootfs")
	var mounts []specs.Mount
	for _, dir := range []string{"/usr", "/lib", "/lib64", "/etc"} {
		if err := os.MkdirAll(filepath.Join(rootfs, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, specs.Mount{Destination: dir, Type: "bind", Source: dir, Options: []string{"rbind", "ro"}})
	}
	build(t, "./testdata/connects", filepath.Join(rootfs, "connects"))
	script, err := os.ReadFile("testdata/connects.py")
	if err := errors.Join(err, os.WriteFile(filepath.Join(rootfs, "connects.py"), script, 0o644)); err != nil {
		t.Fatal(err)
	}
	return n.sandbox(t, "ours", containerd.WithNewSpec(append([]oci.SpecOpts{oci.WithRootFSPath(rootfs), oci.WithMounts(mounts),
		oci.WithProcessArgs(args...), oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: network})}, opts...)...))
}

// execute returns what a further process hears, by address.
func (s *sandbox) execute(t *testing.T, args ...string) map[string]string {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "test")
	spec, err := s.container.Spec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	process := *spec.Process
	process.Args = args
	in, _ := io.Pipe()
	views, out := io.Pipe()
	exec, err := s.task.Exec(ctx, "later", &process, cio.NewCreator(cio.WithStreams(in, out, io.Discard), cio.WithFIFODir(t.TempDir())))
	if err != nil {
		t.Fatal(err)
	}
	exited, err := exec.Wait(ctx)
	if err := errors.Join(err, exec.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	var got map[string]struct{ Said string }
	if err := json.NewDecoder(views).Decode(&got); err != nil {
		t.Error(err)
	}
	if err := exec.Kill(ctx, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-exited
	if _, err := exec.Delete(ctx); err != nil {
		t.Error(err)
	}
	said := map[string]string{}
	for at, r := range got {
		said[at] = r.Said
	}
	return said
}

// A program that knows nothing of it, and connects in any way, gets the daemon's connections to the addresses that
// these are for, under the runtime's own profile and without one. It connects to all others on its own.
func TestProgramsGetConnections(t *testing.T) {
	for name, opts := range map[string][]oci.SpecOpts{"no profile": nil, "the default profile": {seccomp.WithDefaultProfile()}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			d, in := newConnecting(t, n), routed(t)
			direct := saying(t, in, "direct").String()
			t.Run("Go", func(t *testing.T) {
				s := n.program(t, in, opts, "/connects", "20", orders.String(), direct)
				defer s.remove(t)
				var got map[string]struct {
					Said   string
					Wrong  int
					Micros float64
				}
				if err := s.views.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if o := got[orders.String()]; o.Said != "pooled" || o.Wrong > 0 {
					t.Errorf("the daemon's: %+v", o)
				}
				if o := got[direct]; o.Said != "direct" || o.Wrong > 0 {
					t.Errorf("another: %+v", o)
				}
				if d.handed.Load() != 20 { // the first one ahead
					t.Errorf("%d connections were handed over", d.handed.Load())
				}
			})
			t.Run("Python", func(t *testing.T) {
				s := n.program(t, in, opts, "/usr/bin/python3", "/connects.py", orders.Addr().String(), "5432")
				defer s.remove(t)
				var got map[string]string
				if err := s.views.Decode(&got); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"plain": "pooled", "timeout": "pooled", "epoll": "pooled", "streams": "pooled",
					"again": "pooled OSError 106", "bound": "pooled (1, 1) False", "duplicated": "pooled",
					"peer": "pooled 127.0.0.1", "forked": "pooled", "threaded": "pooled 8",
					"executed": "pooled", "datagrams": "('198.51.100.7', 5432)", "local": "FileNotFoundError",
					"interrupted": "pooled"}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
			t.Run("a program of 32 bits", func(t *testing.T) {
				t.Setenv("GOARCH", "386")
				s := n.program(t, in, opts, "/connects", "2", direct)
				defer s.remove(t)
				var got map[string]struct{ Said string }
				if err := s.views.Decode(&got); err != nil || got[direct].Said != "direct" {
					t.Errorf("%+v, %v", got, err)
				}
			})
			t.Run("a program that is executed later", func(t *testing.T) {
				s := n.program(t, in, opts, "/connects", "1", direct)
				defer s.remove(t)
				var got map[string]struct{ Said string }
				if err := s.views.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if said := s.execute(t, "/connects", "3", orders.String())[orders.String()]; said != "pooled" {
					t.Errorf("said %q", said)
				}
			})
			t.Run("without a daemon", func(t *testing.T) {
				s := n.program(t, in, opts, "/connects", "1", orders.String())
				defer s.remove(t)
				var got map[string]struct{ Said string }
				if err := s.views.Decode(&got); err != nil || got[orders.String()].Said != "pooled" {
					t.Fatalf("%+v, %v", got, err)
				}
				d.stop()
				// Nobody answers for the address. What the kernel says depends on the machine's routes.
				all := s.execute(t, "/connects", "1", orders.String(), direct)
				if all[direct] != "direct" || all[orders.String()] == "pooled" {
					t.Errorf("said %v", all)
				}
			})
			if len(d.lapses) > 0 {
				t.Errorf("a lapse: %s", <-d.lapses)
			}
		})
	}
}

// What the first connect(2) of a program takes: the daemon's connection is there as soon as one on the loopback, and
// another one is hardly later. The figures are logged; a machine that does other work meanwhile has others.
func TestConnectTakes(t *testing.T) {
	const programs = 21
	measure := func(t *testing.T, connect, ahead bool, to netip.AddrPort) (first float64) {
		n := newNode(t)
		in := routed(t)
		pool := saying(t, in, "pooled")
		if connect {
			d := newConnecting(t, n)
			d.late = !ahead
		}
		if !to.IsValid() {
			to = pool
		}
		var all []float64
		for range programs {
			s := n.program(t, in, []oci.SpecOpts{seccomp.WithDefaultProfile()}, "/connects", "1", to.String())
			var got map[string]struct {
				First float64
				Said  string
			}
			if err := s.views.Decode(&got); err != nil || got[to.String()].Said != "pooled" {
				t.Errorf("%v, %v", got, err)
			}
			s.remove(t)
			all = append(all, got[to.String()].First)
		}
		slices.Sort(all)
		return all[programs/2]
	}
	none := netip.AddrPort{}
	t.Logf("median of the first connect(2) in microseconds: loopback %.0f, the same with a listener %.0f, "+
		"the daemon's %.0f, ahead %.0f", measure(t, false, false, none), measure(t, true, false, none),
		measure(t, true, false, orders), measure(t, true, true, orders))
}
