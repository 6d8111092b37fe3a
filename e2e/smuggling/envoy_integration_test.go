//go:build integration

package smuggling

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/e2e/ads"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// statPrefix is that of the connection manager of shim/gateway.
const statPrefix = "gateway"

// chain is a real Envoy with the platform's own configuration, the daemon behind it, and what Envoy writes
// to the daemon.
type chain struct {
	*daemon
	address string
	admin   *http.Client
	wire    wire
	clients int // that there were
}

// wire has what came by each connection of Envoy's to the daemon.
type wire struct {
	mu         sync.Mutex
	came       map[int][]byte
	next, open int
}

func startChain(t testing.TB) *chain {
	dir, err := os.MkdirTemp("", "hs-smuggling-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := porttest.Free(t)
	c := &chain{daemon: startDaemon(t, filepath.Join(dir, "daemon")), address: fmt.Sprintf("127.0.0.1:%d", port), wire: wire{came: map[int][]byte{}}}
	conf := gateway.Config{Node: "edge", Port: uint32(port), IngressSocket: filepath.Join(dir, "ingress"),
		HintSocket: filepath.Join(dir, "hint"), AdminSocket: filepath.Join(dir, "admin")}
	c.wire.listen(t, conf.IngressSocket, c.socket)
	server, err := ads.Open(filepath.Join(dir, "xds"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	bootstrap, err := server.Gateway(conf)
	if err != nil {
		t.Fatal(err)
	}
	var state platform.State
	for _, name := range names {
		state.Functions = append(state.Functions, platform.Function{Name: "default/" + name, Hosts: []string{host(name)},
			RequestTimeout: patience, Policy: policy.Policy{ReadyTimeout: patience}})
	}
	if err := server.Update(state, routing.Weights{}); err != nil {
		t.Fatal(err)
	}
	c.startEnvoy(t, dir, bootstrap)
	c.admin = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", conf.AdminSocket)
	}}, Timeout: patience}
	t.Cleanup(c.admin.CloseIdleConnections)
	if !until(func() bool { return c.stat(`listener_manager\.lds\.update_success`) > 0 }) {
		t.Fatal("the gateway does not start")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chain) startEnvoy(t testing.TB, dir string, bootstrap []byte) {
	path := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(path, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	envoy := exec.Command(programtest.Path(t, "envoy"), "-c", path, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
	// The fuzzing's own processes are killed now and then, and what they have started has their pipes.
	envoy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := envoy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = envoy.Process.Kill(); _ = envoy.Wait() })
}

// stat is the sum of Envoy's statistics whose names match.
func (c *chain) stat(expr string) (sum int) {
	r, err := c.admin.Get("http://envoy/stats?filter=" + url.QueryEscape("^"+expr+"$"))
	if err != nil {
		return -1
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		_, value, _ := strings.Cut(lines.Text(), ": ")
		n, err := strconv.Atoi(value)
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

// quiet tells whether Envoy has done all that clients have asked it, and the daemon has all of it.
func (c *chain) quiet() bool {
	if c.stat(`http\.`+statPrefix+`\.downstream_cx_total`) < c.clients || c.stat(`http\.`+statPrefix+`\.downstream_cx_active`) != 0 {
		return false
	}
	open := c.stat(`cluster\.default/[a-z]*\.upstream_cx_active`)
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return open == c.wire.open
}

// listen passes connections on to the daemon, and keeps what Envoy writes.
func (w *wire) listen(t testing.TB, at, to string) {
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			w.mu.Lock()
			w.next++
			w.open++
			id := w.next
			w.mu.Unlock()
			end := context.AfterFunc(ctx, func() { _ = from.Close(); _ = there.Close() })
			running.Go(func() {
				defer func() { _ = there.(*net.UnixConn).CloseWrite() }()
				_, _ = io.Copy(there, noted{from, func(read []byte, _ bool) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.came[id] = append(w.came[id], read...)
				}})
			})
			running.Go(func() { // until the daemon has done with it
				_, _ = io.Copy(from, there)
				_, _ = io.Copy(io.Discard, there) // if Envoy takes no more
				_, _, _ = end(), from.Close(), there.Close()
				w.mu.Lock()
				defer w.mu.Unlock()
				w.open--
			})
		}
	})
	t.Cleanup(func() { stop(); _ = l.Close(); running.Wait() })
}

// requests are those that Envoy has written, as the standard has them.
func (w *wire) requests(t testing.TB) (all []request) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, raw := range w.came {
		got, err := strict(raw)
		if err != nil {
			t.Fatalf("Envoy writes %q: %v", raw, err)
		}
		all = append(all, got...)
	}
	clear(w.came)
	return all
}

// try sends bytes to Envoy, and checks that all have understood the same.
func (c *chain) try(t testing.TB, data []byte, name string, due int, leave bool) (seen []request) {
	t.Helper()
	data = fill(data, name)
	answers := c.send(t, "tcp", c.address, data, due, leave)
	c.clients++
	if !until(c.quiet) {
		t.Fatal("Envoy keeps a connection")
	}
	came, seen := c.check(t, answers)
	written := c.wire.requests(t)
	for _, got := range came {
		at := slices.IndexFunc(written, func(r request) bool { return samePart(r, got) == "" })
		if at < 0 {
			t.Fatalf("the daemon has a request that Envoy has not written:\n%+v\n%+v", got, written)
		}
		written = slices.Delete(written, at, at+1)
		for header, values := range got.Header {
			as := strings.ReplaceAll(header, "_", "-")
			routes := header == filterapi.HeaderFunction && len(values) == 1
			if strings.HasPrefix(as, filterapi.HeaderPrefix) && !routes {
				t.Fatalf("%s: %q come from outside", header, values)
			}
		}
	}
	return seen
}

// samePart compares a request with one that was not read to its end.
func samePart(written, got request) string {
	got.Whole = got.Whole && len(got.Body) == len(written.Body)
	return same(written, got)
}

func FuzzEnvoyAndDaemon(f *testing.F) {
	c := startChain(f)
	addCases(f)
	f.Fuzz(func(t *testing.T, data []byte, function byte, leave bool) {
		c.try(t, data, names[int(function)%len(names)], 0, leave)
	})
}

func TestFunctionsGetWhatEnvoyHasUnderstood(t *testing.T) {
	c := startChain(t)
	for title, n := range whole {
		for _, name := range names {
			t.Run(title+", "+name, func(t *testing.T) {
				if got := wholes(c.try(t, []byte(cases[title]), name, n, false)); got != n {
					t.Errorf("it gets %d", got)
				}
			})
		}
	}
}

// Requests of odd parts, one after the other by one connection.
func TestOddRequests(t *testing.T) {
	c := startChain(t)
	rapid.Check(t, func(r *rapid.T) {
		data := strings.Join(rapid.SliceOfN(rapid.Custom(oddRequest), 1, 4).Draw(r, "requests"), "")
		c.try(t, []byte(data), rapid.SampledFrom(names).Draw(r, "function"), 0, rapid.Bool().Draw(r, "leave"))
	})
}
