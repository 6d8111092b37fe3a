package serve_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// attackers is how many connections a stranger opens: more than its share.
const attackers = 300

// idlers is how many a stranger opens by which it says nothing.
const idlers = 10_000

// door is a kind of listener that Headstart's programs have, served.
type door struct {
	address string
	// ask is what everybody else wants of it.
	ask func() error
	// most is how many connections the stranger may keep.
	most int
}

// doors are all kinds, by name.
func doors(t *testing.T) map[string]door {
	t.Helper()
	authority := peertlstest.New(t)
	server, client := authority.Load(t, "edge-1", net.IPv4(127, 0, 0, 1))
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	overHTTP := func(scheme string, most int, listen serve.Listen) door {
		l := opened(t, listen)
		serving(t, l, hello)
		address, conf := l.Addr().String(), peertls.ClientFor(client, "127.0.0.1")
		return door{address, func() error { return get(scheme, address, conf) }, most}
	}
	overGRPC := func(own, callers credentials.TransportCredentials) door {
		l := opened(t, serve.TCP("127.0.0.1:0", serve.Parties))
		s := serve.NewGRPC(grpc.Creds(own))
		healthpb.RegisterHealthServer(s, health.NewServer())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve.GRPC(ctx, s)(l) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return door{l.Addr().String(), func() error { return check(l.Addr().String(), callers) }, serve.Parties.Each}
	}
	return map[string]door{
		"HTTP":               overHTTP("http", serve.Strangers.Each, serve.TCP("127.0.0.1:0", serve.Strangers)),
		"HTTP by mutual TLS": overHTTP("https", serve.Newcomers.Each, serve.TLS("127.0.0.1:0", server)),
		"gRPC":               overGRPC(insecure.NewCredentials(), insecure.NewCredentials()),
		"gRPC by mutual TLS": overGRPC(credentials.NewTLS(server),
			credentials.NewTLS(peertls.ClientFor(client, "127.0.0.1"))),
		"HTTP with three places": overHTTP("http", 2, serve.TCP("127.0.0.1:0", serve.Crowd{All: 3, Each: 2})),
	}
}

func opened(t *testing.T, listen serve.Listen) net.Listener {
	t.Helper()
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(scheme, address string, conf *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: conf}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patient}).Get(scheme + "://" + address + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if said, err := io.ReadAll(resp.Body); err != nil || string(said) != "hello" {
		return fmt.Errorf("%d %s, %w", resp.StatusCode, said, err)
	}
	return nil
}

func check(address string, with credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(with))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	return err
}

// stranger connects from an address of its own, and says something.
func stranger(t *testing.T, address, says string) (net.Conn, error) {
	t.Helper()
	d := &net.Dialer{Timeout: patient, LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.2:0"))}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, says)
	return c, err
}

// left is how many of the connections the other side keeps open, when it has closed all that it will at once.
func left(conns []net.Conn, most int) int {
	var open sync.Map
	var reading sync.WaitGroup
	for _, c := range conns {
		open.Store(c, true)
		reading.Go(func() {
			_, err := io.Copy(io.Discard, c) // a server of HTTP/2 speaks first
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				open.Delete(c)
			}
		})
	}
	count := func() (n int) {
		open.Range(func(any, any) bool { n++; return true })
		return n
	}
	for end := time.Now().Add(patient); count() > most && time.Now().Before(end); {
		time.Sleep(hasty)
	}
	n := count()
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now())
	}
	reading.Wait()
	return n
}

// A stranger opens very many connections and says nothing, or half of something, by each: a request's
// head that never ends (slowloris), a handshake that never ends. The server keeps few, and serves all others.
func TestAttackManyConnections(t *testing.T) {
	for name, says := range map[string]string{
		"idle":                          "",
		"a head without an end":         "GET / HTTP/1.1\r\nHost: a\r\nX-A: ",
		"a handshake without an end":    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a preface without a settings":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a preface that never comes to": "PRI * HT",
	} {
		t.Run(name, func(t *testing.T) {
			for kind, d := range doors(t) {
				t.Run(kind, func(t *testing.T) {
					n := attackers
					if says == "" && kind == "HTTP" {
						n = idlers
					}
					var conns []net.Conn
					for range n {
						c, err := stranger(t, d.address, says)
						if c == nil {
							t.Fatal(err)
						} // else the server may have closed it already
						conns = append(conns, c)
					}
					if err := d.ask(); err != nil {
						t.Errorf("others are not served: %v", err)
					}
					if n := left(conns, d.most); n > d.most {
						t.Errorf("a stranger has %d connections of %d; at most %d are its share", n, len(conns), d.most)
					}
					if err := d.ask(); err != nil {
						t.Errorf("others are not served: %v", err)
					}
				})
			}
		})
	}
}

// A head that is larger than any gateway sends is refused, and takes no more memory than its limit.
func TestAttackHugeHead(t *testing.T) {
	d := doors(t)["HTTP"]
	c, err := stranger(t, d.address, "GET / HTTP/1.1\r\nHost: a\r\n")
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for line := "X-A: " + strings.Repeat("a", 1024) + "\r\n"; sent < 8<<20; sent += len(line) {
		if _, err := io.WriteString(c, line); err != nil {
			break
		}
	}
	if sent >= 8<<20 {
		t.Errorf("%d bytes of a head are taken", sent)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("it is answered %s", resp.Status)
		}
	}
	if err := d.ask(); err != nil {
		t.Errorf("others are not served: %v", err)
	}
}
