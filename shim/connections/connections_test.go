package connections

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/pool"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	patience = 10 * time.Second
	pod      = "shop_cart-x_u-1"
)

// echo is a destination: it says who it is and which connection this is, then what it is told.
type echo struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: l}
	e.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, c)
			number := len(e.conns)
			e.mu.Unlock()
			e.wg.Go(func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = fmt.Fprintf(c, "%d %s\n", number, lines.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range e.all() {
			_ = c.Close()
		}
		e.wg.Wait()
	})
	return e
}

func (e *echo) all() []net.Conn { e.mu.Lock(); defer e.mu.Unlock(); return slices.Clone(e.conns) }

// shims dial from here, and join as often as they are told to.
type shims struct {
	mu     sync.Mutex
	dials  []string
	refuse int // so many dials
	joins  bool
	joined int
	wg     sync.WaitGroup
}

func (s *shims) Dial(ctx context.Context, sandbox string, at netip.AddrPort) (net.Conn, error) {
	s.mu.Lock()
	s.dials = append(s.dials, sandbox)
	refuse := len(s.dials) <= s.refuse
	s.mu.Unlock()
	if refuse {
		return nil, errors.New("the sidecar is not there yet")
	}
	return fromNode(ctx, at)
}

func (s *shims) setJoins(joins bool) { s.mu.Lock(); defer s.mu.Unlock(); s.joins = joins }

func (s *shims) Targets(string, []netip.AddrPort) {}

func (s *shims) dialled() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.dials) }

func (s *shims) Join(_ context.Context, _ string, client, server net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.joins {
		return errors.New("there is no shim")
	}
	s.joined++
	a, errA := copyOf(client)
	b, errB := copyOf(server)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	s.wg.Go(func() { defer a.Close(); defer b.Close(); pump(context.Background(), a, b) })
	return nil
}

// copyOf is what somebody has who was handed the connection.
func copyOf(c net.Conn) (net.Conn, error) {
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// next hears of a sandbox's first request.
func (r *rig) next(ctx context.Context, _ string) string {
	select {
	case trace := <-r.requests:
		return trace
	case <-ctx.Done():
		return ""
	}
}

// rig is a node whose pods are connected to one destination.
type rig struct {
	*Server
	t     *testing.T
	dir   string
	shims *shims
	set   *sandboxes.Kubelet
	said  []*nodeapi.Event
	mu    sync.Mutex
	// before, if there is one, runs before a daemon that starts has its list.
	before   func()
	requests chan string // the traces of requests
}

func newRig(t *testing.T, destinations ...*nodeapi.Destination) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "instances"), shims: &shims{}, requests: make(chan string)}
	r.start(destinations...)
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start(destinations ...*nodeapi.Destination) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	registry := prometheus.NewRegistry()
	var err error
	r.Server, err = New(Config{Shims: r.shims, SecretsDir: r.t.TempDir(), Metrics: NewMetrics(registry), Log: log,
		Event:       func(e *nodeapi.Event) { r.mu.Lock(); defer r.mu.Unlock(); r.said = append(r.said, e) },
		Traceparent: func(string) string { return "" }, Next: r.next})
	if err != nil {
		r.t.Fatal(err)
	}
	registry.MustRegister(NewCollector(r.Server))
	if _, err := testutil.GatherAndLint(registry); err != nil {
		r.t.Error(err)
	}
	if r.before == nil {
		r.Set(destinations)
	}
	for _, d := range destinations {
		r.pool.Allow(d.GetName(), 4, time.Now().Add(time.Hour))
	}
	r.set, err = sandboxes.OpenKubelet(sandboxes.Config{Dir: r.dir, Providers: []sandboxes.Provider{sockets{}, r.Server},
		Succeeds: true, Log: log}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.before != nil {
		r.before()
		r.Set(destinations)
	}
}

func (r *rig) stop() { r.set.Close(); r.Close(); r.shims.wg.Wait() }

// sockets have the directory in which those of connections appear.
type sockets struct{}

func (sockets) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	dir, path, err := sb.Directory(functionapi.Directory)
	if err == nil {
		err = dir.Close()
	}
	return sandboxes.Need{Mounts: []*nodeapi.Mount{{Source: path, Destination: functionapi.Mount, ReadOnly: true}}}, err
}

func (sockets) Release(string) {}

// describe has the shim of a container of the pod ask.
func (r *rig) describe(container string, c *nodeapi.Connections) *nodeapi.DescribeResponse {
	r.t.Helper()
	if c != nil {
		r.set.Instances(&nodeapi.Instances{Connections: []*nodeapi.Connections{c}})
	}
	d, err := r.set.Describe(r.t.Context(), &nodeapi.DescribeRequest{Sandbox: "container-" + container, Connections: c != nil,
		Pod: &nodeapi.Pod{Namespace: "shop", Name: "cart-x", Uid: "u-1", Container: container}})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func wants(by string, names ...string) *nodeapi.Connections {
	return &nodeapi.Connections{Id: pod, Name: "shop/cart", Container: "cart", Destinations: names, By: by}
}

// dial connects as the sandbox's program does.
func (r *rig) dial(name, socket string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("unix", filepath.Join(r.dir, pod, "connection-"+name, socket))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// ask says something to a destination, and returns which of its connections answers.
func ask(t *testing.T, c io.ReadWriter) (number int) {
	t.Helper()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if n, err := fmt.Sscanf(line, "%d hello\n", &number); n != 1 {
		t.Fatalf("%q: %v", line, err)
	}
	return number
}

func (e *echo) at(origin string) *nodeapi.Destination {
	return &nodeapi.Destination{Name: "ledger", Kind: "tcp", Address: e.Addr().String(), Origin: origin}
}

// await looks until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// The container that is named finds sockets, and another one of the pod finds none; both find the pod's own directory.
func TestTheContainerThatIsNamed(t *testing.T) {
	r := newRig(t, newEcho(t).at("node"))
	mounts := func(d *nodeapi.DescribeResponse) (all []string) {
		for _, m := range d.GetMounts() {
			if strings.HasPrefix(m.GetDestination(), "/headstart/socket") {
				all = append(all, m.GetDestination())
			}
		}
		return all
	}
	c := wants("socket", "ledger")
	got := r.describe("cart", c)
	if all := mounts(got); !slices.Equal(all, []string{"/headstart/socket", "/headstart/socket/ledger"}) || !got.GetStreams() || got.GetConnect() {
		t.Errorf("the function's container is described as %v", got)
	}
	if got := r.describe("sidecar", c); len(mounts(got)) != 1 || got.GetStreams() {
		t.Errorf("another container is described as %v", got)
	}
}

// With the origin node the first program's connection is made when it asks; the next one's waits by then.
func TestConnectionsWaitOnTheNode(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("node"))
	r.describe("cart", wants("socket", "ledger"))
	first := ask(t, r.dial("ledger", "tcp.sock")) // may be made after the one that waits
	await(t, "a connection waits", func() bool { return len(e.all()) == 2 })
	if second := ask(t, r.dial("ledger", "tcp.sock")); first+second != 1+2 {
		t.Errorf("they have connections %d and %d", first, second)
	}
}

// With the origin sandbox it is made while the program starts, tried again until the sandbox's network is there, and no
// other is made then. A program's further ones are made when it asks.
func TestConnectionsAreMadeInTheSandbox(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("sandbox"))
	r.shims.refuse = 3
	r.describe("cart", wants("socket", "ledger"))
	await(t, "it is connected", func() bool { return len(e.all()) == 1 })
	if n, d := ask(t, r.dial("ledger", "tcp.sock")), r.shims.dialled(); n != 1 || d != 4 {
		t.Errorf("the first has connection %d, %d were tried", n, d)
	}
	if n, d := ask(t, r.dial("ledger", "tcp.sock")), r.shims.dialled(); n != 2 || d != 5 {
		t.Errorf("the second has connection %d, %d were tried", n, d)
	}
}

// Streams are joined by the shim, if there is one: those go on when the daemon ends, and others break off.
func TestStreamsOutliveTheDaemon(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("node"))
	r.describe("cart", wants("socket", "ledger"))
	r.shims.setJoins(true)
	joined := r.dial("ledger", "tcp.sock")
	ask(t, joined)
	r.shims.setJoins(false)
	pumped := r.dial("ledger", "tcp.sock")
	ask(t, pumped)
	r.set.Close()
	r.Close()
	ask(t, joined)
	if _, err := pumped.Read(make([]byte, 1)); err == nil {
		t.Error("a stream by way of the daemon outlives it")
	}
	r.start(e.at("node"))
	ask(t, r.dial("ledger", "tcp.sock")) // the next daemon has the socket
	_ = joined.Close()
}

// The next daemon has the socket before a control plane has told it the list.
func TestADaemonBeforeItsList(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("node"))
	r.describe("cart", wants("socket", "ledger"))
	r.set.Close()
	r.Close()
	r.before = func() {
		early := r.dial("ledger", "tcp.sock")
		t.Cleanup(func() { ask(t, early) })
	}
	r.start(e.at("node"))
	if len(r.said) > 0 {
		t.Errorf("events: %v", r.said)
	}
}

// A descriptor is one end of a stream that the daemon answers on, by a connection that waits where one does. A program could
// aim a socket of the daemon's own network elsewhere, so it never gets one. It gets only so many.
func TestDescriptors(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("node"))
	d := r.describe("cart", wants("descriptor", "ledger"))
	if !slices.Equal(d.GetDescriptors(), []string{"ledger"}) {
		t.Fatalf("described as %v", d)
	}
	files, err := r.set.Descriptors("container-cart")
	if err != nil {
		t.Fatal(err)
	}
	kind := func(f *os.File) int {
		n, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	inherited := files[0]
	defer inherited.Close()
	_ = unix.SetNonblock(int(inherited.Fd()), false)
	first := ask(t, inherited) // may be made after the one that waits
	if of := kind(inherited); of != unix.AF_UNIX {
		t.Errorf("the inherited one is of family %d", of)
	}
	await(t, "a connection waits", func() bool { return len(e.all()) >= 2 && waits(r) })
	from := r.dial("ledger", "descriptor.sock").(*net.UnixConn)
	control := make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := from.ReadMsgUnix(make([]byte, 2), control)
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	fetched := os.NewFile(uintptr(fds[0]), "fetched")
	defer fetched.Close()
	_ = unix.SetNonblock(fds[0], false)
	if n, of := ask(t, fetched), kind(fetched); first+n != 1+2 || of != unix.AF_UNIX {
		t.Errorf("the inherited one is connection %d, the fetched one %d of family %d", first, n, of)
	}
}

// What the operator does not allow is not there, and an event says so; the container starts.
func TestDestinationsThatAreNotAllowed(t *testing.T) {
	others := newEcho(t).at("node")
	others.Namespaces = []string{"bank"}
	r := newRig(t, others)
	for _, name := range []string{"ledger", "unknown"} {
		d := r.describe("cart", wants("socket", name))
		for _, m := range d.GetMounts() {
			if strings.HasPrefix(m.GetDestination(), "/headstart/socket/") {
				t.Errorf("%s: described as %v", name, d)
			}
		}
		r.set.Close()
		r.Close()
		if err := os.RemoveAll(r.dir); err != nil {
			t.Fatal(err)
		}
		r.start(others)
	}
	if len(r.said) != 2 || !strings.Contains(r.said[0].GetMessage(), "not for the functions of the namespace") ||
		!strings.Contains(r.said[1].GetMessage(), "not on the operator's list") {
		t.Errorf("events: %v", r.said)
	}
}

// A node whose list is older than the control plane's has the sockets, and connects when its list has the destination.
func TestAnOlderList(t *testing.T) {
	server := newEcho(t).at("node")
	r := newRig(t)
	of := wants("socket", "ledger")
	of.Kinds = map[string]string{"ledger": server.GetKind()}
	r.describe("cart", of)
	c := r.dial("ledger", "tcp.sock")
	r.Set([]*nodeapi.Destination{server})
	if n := ask(t, c); n != 1 {
		t.Errorf("connection %d answers", n)
	}
	if len(r.said) > 0 {
		t.Errorf("events: %v", r.said)
	}
}

// A server that refuses is no end of the program: its connection ends, and the operator hears of it.
func TestAServerThatRefuses(t *testing.T) {
	e := newEcho(t)
	d := e.at("node")
	_ = e.Close()
	r := newRig(t, d)
	r.describe("cart", wants("socket", "ledger"))
	if n, err := r.dial("ledger", "tcp.sock").Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came", n)
	}
	if m, _ := r.list.look(t.Context(), r.used()); len(m.GetProblems()) != 1 || !strings.Contains(m.GetProblems()[0].GetMessage(), "refused") {
		t.Errorf("problems: %v", m)
	}
}

// A sandbox that ends takes its sockets along, and what was made for it.
func TestTheEndOfASandbox(t *testing.T) {
	e := newEcho(t)
	r := newRig(t, e.at("sandbox"))
	r.describe("cart", wants("socket", "ledger"))
	await(t, "it is connected", func() bool { return len(e.all()) == 1 })
	r.Release(pod)
	if _, err := e.all()[0].Read(make([]byte, 1)); err == nil {
		t.Error("its connection is still there")
	}
	await(t, "its socket is no more", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, pod, "connection-ledger", "tcp.sock"))
		return errors.Is(err, os.ErrNotExist)
	})
}

// A sandbox has only so many connections in the daemon's hands, by whichever way, and each place is free again when a
// program leaves.
func TestASandboxHasSoManyConnections(t *testing.T) {
	e := newEcho(t)
	orders := &nodeapi.Destination{Name: "orders", Kind: "redis", Address: e.Addr().String(), Origin: "node"}
	r := newRig(t, orders)
	r.describe("cart", wants("socket", "orders"))
	var all []net.Conn
	sb := r.known(pod)
	for range connectionsMost {
		all = append(all, r.dial("orders", "redis.sock"))
	}
	await(t, "all are in the daemon's hands", func() bool { return sb.open.Load() == connectionsMost })
	if n, err := r.dial("orders", "redis.sock").Read(make([]byte, 1)); err == nil {
		t.Errorf("one more hears %d bytes", n)
	}
	if _, err := r.descriptor(sb, "orders"); err == nil {
		t.Error("one more by a descriptor")
	}
	for _, c := range all {
		_ = c.Close()
	}
	await(t, "they are gone", func() bool { return sb.open.Load() == 0 })
}

// A program that connects to a destination's address gets what the operator's way there has, by connect(2) alone: a stream to
// the connection that waits, or that the daemon answers on. Who speaks TLS gets the server's own stream.
func TestConnect(t *testing.T) {
	for _, kind := range []string{"tcp", "postgres"} {
		e := newEcho(t)
		d := e.at("node")
		d.Kind = kind
		at := netip.MustParseAddrPort(e.Addr().String())
		r := newRig(t, d)
		if c := r.describe("cart", wants("connect", "ledger")); !c.GetConnect() || !c.GetStreams() {
			t.Errorf("described as %v", c)
		}
		connect := func(id string, at netip.AddrPort) (take func(net.Conn), taken bool) {
			take, err := r.Connect(t.Context(), id, at, false)
			if err != nil {
				t.Error(err)
			}
			return take, take != nil
		}
		for what, other := range map[string]netip.AddrPort{"port": netip.AddrPortFrom(at.Addr(), 1), "host": netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), at.Port())} {
			if _, taken := connect(pod, other); taken {
				t.Errorf("another %s is taken", what)
			}
		}
		if _, taken := connect("another", at); taken {
			t.Error("another sandbox's is taken")
		}
		if kind == "tcp" {
			for _, ahead := range []bool{true, false} {
				if take, err := r.Connect(t.Context(), pod, at, ahead); take != nil || err != nil {
					t.Errorf("it is taken where none waits, ahead %t: %v", ahead, err)
				}
			}
			await(t, "a connection waits", func() bool { return waits(r) })
			if take, err := r.Connect(t.Context(), pod, at, true); take == nil || err != nil {
				t.Errorf("not taken ahead: %v", err)
			} else if take(nil); !waits(r) {
				t.Error("the one that waits is used before a program connects")
			}
		} else if take, err := r.Connect(t.Context(), pod, at, true); take == nil || err != nil {
			t.Errorf("not taken ahead: %v", err)
		} else {
			take(nil) // no program comes
		}
		if n := r.known(pod).open.Load(); n != 0 {
			t.Errorf("%d places are taken", n)
		}
		take, taken := connect(pod, at)
		if !taken {
			t.Fatal("it is not taken")
		}
		program := connected(t, take)
		if kind == "tcp" {
			if n := ask(t, program); n != 1 {
				t.Errorf("it is connection %d", n)
			}
			await(t, "another one waits", func() bool { return len(e.all()) >= 2 && waits(r) })
			take, _ := connect(pod, at)
			if take == nil {
				t.Fatal("it is not taken")
			}
			take(nil)
			await(t, "one that no program comes for ends", func() bool {
				_, err := e.all()[1].Write(nil)
				return errors.Is(err, net.ErrClosed)
			})
			await(t, "a third one waits", func() bool { return len(e.all()) >= 3 && waits(r) })
			continue
		}
		cancels := append([]byte{0, 0, 0, 16, 4, 210, 22, 46}, "7;secret"...)
		if _, err := program.Write(cancels); err != nil {
			t.Error(err)
		}
		await(t, "a request to cancel goes to the server", func() bool { return len(e.all()) == 1 })
		if wanted := r.pool.Usage(); len(wanted) > 0 {
			t.Errorf("a request to cancel has %v made", wanted)
		}
		if take, _ = connect(pod, at); take == nil {
			t.Fatal("it is not taken")
		}
		program = connected(t, take)
		if _, err := program.Write(append([]byte{0, 0, 0, 8, 4, 210, 22, 47}, "hello\n"...)); err != nil {
			t.Error(err)
		} else if line, err := bufio.NewReader(program).ReadString('\n'); err != nil || !strings.HasSuffix(line, "hello\n") {
			t.Errorf("who speaks TLS hears %q, %v", line, err)
		}
	}
}

// connected is the end of a program that has connected.
func connected(t *testing.T, take func(net.Conn)) net.Conn {
	t.Helper()
	theirs, own, err := socketpair("program")
	if err != nil {
		t.Fatal(err)
	}
	program, err := net.FileConn(theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	take(own)
	return program
}

// Where a stream waits, a program's first connection is promised before it asks. The stream counts as unused until then; if it
// is lost meanwhile the program gets a fresh one, and if the server is lost it hears so.
func TestTheFirstConnectionIsPromised(t *testing.T) {
	for _, origin := range []string{"node", "sandbox"} {
		t.Run(origin, func(t *testing.T) {
			e := newEcho(t)
			r := newRig(t, e.at(origin))
			at := netip.MustParseAddrPort(e.Addr().String())
			r.describe("cart", wants("connect", "ledger"))
			if origin == "node" {
				if take, err := r.Connect(t.Context(), pod, at, false); take != nil || err != nil {
					t.Fatalf("it is taken where none waits: %v", err)
				}
			}
			promise := func() (take func(net.Conn)) {
				await(t, "it is promised", func() bool {
					var err error
					if take, err = r.Connect(t.Context(), pod, at, true); err != nil {
						t.Fatal(err)
					}
					return take != nil
				})
				return take
			}
			take, again := promise(), promise()
			if n := ask(t, connected(t, take)); n != 1 {
				t.Errorf("the program has connection %d", n)
			}
			if n := ask(t, connected(t, again)); n < 2 {
				t.Errorf("another program has connection %d", n)
			}
			if origin == "node" {
				take = promise()
				_ = e.Close()
				for _, c := range e.all() {
					_ = c.Close()
				}
				if _, err := connected(t, take).Read(make([]byte, 1)); err == nil {
					t.Error("a program does not hear that the server is gone")
				}
			}
		})
	}
}

func noMetrics() *Metrics { return NewMetrics(prometheus.NewRegistry()) }

// Each direction of a stream ends by itself, by way of the daemon as well.
func TestHalfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, &nodeapi.Destination{Name: "ledger", Kind: "tcp", Address: l.Addr().String(), Origin: "sandbox"})
	r.describe("cart", wants("socket", "ledger"))
	for _, joins := range []bool{false, true} {
		for _, first := range []string{"program", "server"} {
			r.shims.setJoins(joins)
			ends := map[string]net.Conn{"program": r.dial("ledger", "tcp.sock")}
			if ends["server"], err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			other := map[string]string{"program": "server", "server": "program"}[first]
			_ = ends["server"].SetDeadline(time.Now().Add(patience))
			for _, from := range []string{first, other} {
				to := map[string]string{"program": "server", "server": "program"}[from]
				if _, err := io.WriteString(ends[from], "that is all"); err != nil {
					t.Errorf("%s first, joined %t: %s: %v", first, joins, from, err)
				}
				if err := ends[from].(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
				if got, err := io.ReadAll(ends[to]); string(got) != "that is all" || err != nil {
					t.Errorf("%s first, joined %t: %s got %q, %v", first, joins, to, got, err)
				}
			}
			_ = ends["server"].Close()
		}
	}
}

// waits tells whether a connection with any destination waits, opened.
func waits(r *rig) bool {
	return slices.ContainsFunc(r.pool.Usage(), func(u pool.Usage) bool { return !u.Since.IsZero() })
}

// A program may begin with what it has inherited much later, or never: that is no error, and nothing is opened for it.
func TestAProgramThatBeginsLater(t *testing.T) {
	e := newEcho(t)
	orders := &nodeapi.Destination{Name: "orders", Kind: "redis", Address: e.Addr().String(), Origin: "node"}
	r := newRig(t, orders)
	r.describe("cart", wants("descriptor", "orders"))
	files, err := r.set.Descriptors("container-cart")
	if err != nil {
		t.Fatal(err)
	}
	if began := begins(expired(t), r.dial("orders", "redis.sock")); began {
		t.Error("a program that says nothing has begun")
	}
	if len(e.all()) > 0 {
		t.Error("a connection was made for nobody")
	}
	if _, err := files[0].WriteString("PING\r\n"); err != nil {
		t.Error(err)
	}
	await(t, "the server is asked", func() bool { return len(e.all()) > 0 })
	_ = files[0].Close()
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A name server that does not answer holds up nobody but its own destination, and that for a while only.
func TestANameServerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewed []string
		var mu sync.Mutex
		secrets := t.TempDir()
		l, err := openList(secrets, "", func(name string) { mu.Lock(); defer mu.Unlock(); renewed = append(renewed, name) })
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		password := func(is string) {
			if err := os.WriteFile(filepath.Join(secrets, "orders-db"), []byte("password = "+is+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		password("before")
		all, used := []*nodeapi.Destination{{Name: "orders", Kind: "redis", Address: "127.0.0.1:1", Secret: "orders-db"}}, map[string]bool{}
		for i := range looksMost / 2 {
			all = append(all, &nodeapi.Destination{Name: fmt.Sprint(i), Kind: "tcp", Address: "silent.example.com:1"})
			used[fmt.Sprint(i)] = true
		}
		l.replace(all)
		for name := range used {
			l.all[name].lookUp = func(ctx context.Context, _, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
		}
		password("after")
		began, looked := time.Now(), make(chan *nodeapi.DestinationProblems)
		go func() { m, _ := l.look(t.Context(), used); looked <- m }()
		synctest.Wait()
		mu.Lock()
		if !slices.Equal(renewed, []string{"orders"}) {
			t.Errorf("renewed: %v", renewed)
		}
		mu.Unlock()
		if m, took := <-looked, time.Since(began); took != lookTimeout || len(m.GetProblems()) != len(used) {
			t.Errorf("a look takes %v, problems: %v", took, m)
		}
	})
}

// greeter is a server that speaks first, as MySQL's does.
func greeter(t *testing.T) (d *nodeapi.Destination, accepted func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_, _ = io.WriteString(c, "hello\n")
			wg.Go(func() { defer c.Close(); _, _ = io.Copy(io.Discard, c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	asked := 0
	return &nodeapi.Destination{Name: "ledger", Kind: "tcp", Address: l.Addr().String()}, func() int {
		c, err := net.Dial("tcp", l.Addr().String()) // is accepted after those that were made before
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		asked++
		return int(n.Load()) - asked
	}
}

// With a server that speaks first no connection waits after the first few, and programs get theirs when they ask.
func TestAServerThatSpeaksFirst(t *testing.T) {
	for _, origin := range []string{"node", "sandbox"} {
		d, accepted := greeter(t)
		d.Origin = origin
		r := newRig(t, d)
		r.describe("cart", wants("socket", "ledger"))
		sb, of, err := r.find(pod, "ledger")
		if err != nil {
			t.Fatal(err)
		}
		start := func() {
			c := r.dial("ledger", "tcp.sock")
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
				t.Fatalf("%s: the program hears %q, %v", origin, line, err)
			}
			_ = c.Close()
		}
		for n := range firstWordsMost {
			if origin == "sandbox" {
				r.prepare(sb, "ledger", of)
				await(t, "one is lost", func() bool { of.mu.Lock(); defer of.mu.Unlock(); return of.spoke > n })
			}
			start()
		}
		await(t, "no more are made", func() bool { return of.speaksFirst() && len(r.pool.Usage()) == 0 })
		before := accepted()
		r.prepare(sb, "ledger", of)
		start()
		if n := accepted() - before; n != 1 || len(r.pool.Usage()) > 0 || len(sb.aheads) > 0 {
			t.Errorf("%s: %d connections for one start; %v wait", origin, n, r.pool.Usage())
		}
	}
}

// A sandbox's connection that was made before the address or the secret changed is not for its program: it gets another one.
func TestANewAddressInASandbox(t *testing.T) {
	before, after := newEcho(t), newEcho(t)
	r := newRig(t, before.at("sandbox"))
	r.describe("cart", wants("socket", "ledger"))
	await(t, "it is connected", func() bool { return len(before.all()) == 1 })
	r.Set([]*nodeapi.Destination{after.at("sandbox")})
	await(t, "it is connected again", func() bool { return len(after.all()) == 1 })
	if _, err := before.all()[0].Read(make([]byte, 1)); err == nil {
		t.Error("the connection of before is still there")
	}
	if ask(t, r.dial("ledger", "tcp.sock")); len(after.all()) != 1 {
		t.Errorf("its program has another one than the one that waits")
	}
}
