package probe_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	stdnet "net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

const localhost = "127.0.0.1"

// node returns the configurations of the node called name.
func node(t testing.TB, a *peertlstest.Authority, name string) (server *tls.Config, client func(string) (*tls.Config, error)) {
	server, own := a.Load(t, name, stdnet.ParseIP(localhost))
	return server, func(host string) (*tls.Config, error) { return peertls.ClientFor(own, host), nil }
}

// daemon serves what a node's daemon does on its port for peers, until the test ends, and
// returns its address.
func daemon(t testing.TB, conf *tls.Config, options ...func(*http.Server)) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	bound := make(chan string, 1)
	listen := func() (stdnet.Listener, error) {
		l, err := serve.TLS(localhost+":0", conf)()
		if err == nil {
			bound <- l.Addr().String()
		}
		return l, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	serve.Go(g, listen, serve.HTTP(ctx, hello, time.Minute, discard, options...))
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return <-bound
}

func TestProbesGoBetweenDaemons(t *testing.T) {
	a := peertlstest.New(t)
	server, _ := node(t, a, "edge")
	_, client := node(t, a, "cloud")
	there := coordinate.New("edge").Point()
	// A server that chooses its certificate at each handshake, as one on Kubernetes does.
	chooses := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server, nil }}
	for name, conf := range map[string]*tls.Config{"one certificate": server, "chosen": chooses} {
		t.Run(name, func(t *testing.T) {
			address := daemon(t, probe.Offer(conf), probe.NewResponder(func() coordinate.Point { return there }).Register)
			asks := probe.NewConnections(client)
			defer asks.Keep(nil)
			for range 3 {
				rtt, at, err := asks.Ask(t.Context(), probe.Peer{Name: "edge", Address: address})
				if err != nil {
					t.Fatal(err)
				}
				if rtt <= 0 || rtt > time.Second {
					t.Errorf("a round trip of %s within one machine", rtt)
				}
				if at.Moved(there) != 0 {
					t.Errorf("the peer is at %v, and not at %v", at.Message(), there.Message())
				}
				time.Sleep(60 * ms) // more often nobody asks, and the responder hangs up
			}
		})
	}
}

// Requests that are handed over use the same port.
func TestPortStillTakesRequests(t *testing.T) {
	a := peertlstest.New(t)
	server, _ := node(t, a, "edge")
	_, client := node(t, a, "cloud")
	address := daemon(t, probe.Offer(server), probe.NewResponder(func() coordinate.Point { return coordinate.Point{} }).Register)
	for name, protocols := range map[string][]string{"that name no protocol": nil, "of HTTP/1.1": {"http/1.1"}, "that would like HTTP/2": {"h2", "http/1.1"}} {
		conf, _ := client(localhost)
		conf.NextProtos = protocols
		transport := &http.Transport{DialTLSContext: (&tls.Dialer{Config: conf}).DialContext}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + address)
		if err != nil {
			t.Errorf("clients %s: %v", name, err)
			continue
		}
		if said, _ := io.ReadAll(resp.Body); string(said) != "hello" {
			t.Errorf("clients %s hear %q", name, said)
		}
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
	}
}

func TestPeersThatAreNotAskedTwice(t *testing.T) {
	ours, theirs := peertlstest.New(t), peertlstest.New(t)
	server, _ := node(t, ours, "edge")
	foreign, _ := node(t, theirs, "edge")
	_, client := node(t, ours, "cloud")
	responder := probe.NewResponder(func() coordinate.Point { return coordinate.New("edge").Point() })
	nowhere := probe.NewResponder(func() coordinate.Point { return coordinate.Point{} })
	for name, c := range map[string]struct {
		address, want string
	}{
		"of another name":      {daemon(t, probe.Offer(server), responder.Register), `is "edge"`},
		"older daemons":        {daemon(t, server), "takes no probes"},
		"of another authority": {daemon(t, probe.Offer(foreign), responder.Register), "certificate"},
		"that are nowhere":     {daemon(t, probe.Offer(server), nowhere.Register), "not a coordinate"},
		"without an address":   {"", "missing port"},
	} {
		t.Run(name, func(t *testing.T) {
			asks := probe.NewConnections(client)
			defer asks.Keep(nil)
			peer := probe.Peer{Name: "edge", Address: c.address}
			if name == "of another name" {
				peer.Name = "other"
			}
			if _, _, err := asks.Ask(t.Context(), peer); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A peer that does not behave is hung up on, and costs nothing more.
func TestResponderHangsUp(t *testing.T) {
	a := peertlstest.New(t)
	server, _ := node(t, a, "edge")
	_, client := node(t, a, "cloud")
	address := daemon(t, probe.Offer(server), probe.NewResponder(func() coordinate.Point { return coordinate.New("edge").Point() }).Register)
	dial := func(t *testing.T) *tls.Conn {
		conf, _ := client(localhost)
		conf.NextProtos = []string{probe.Protocol}
		c, err := tls.Dial("tcp", address, conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for name, said := range map[string]string{"on something else": "GET / HTTP/1.1\r\n\r\n", "on a flood": strings.Repeat("\x01", 1000)} {
		t.Run(name, func(t *testing.T) {
			c := dial(t)
			if _, err := io.WriteString(c, said); err != nil {
				t.Fatal(err)
			}
			heard, _ := io.ReadAll(c) // until it hangs up
			if len(heard) > 300 {
				t.Errorf("%d bytes of answers", len(heard))
			}
		})
	}
	t.Run("on many connections of one node", func(t *testing.T) {
		for range 4 {
			dial(t)
		}
		// One after the other, so that all four are there before the fifth.
		c := dial(t)
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a fifth one is served")
		}
	})
}

// A prober finds out how far its peers are, and where it is itself; when it ends, nothing is
// left.
func TestProber(t *testing.T) {
	a := peertlstest.New(t)
	plans := map[string]*probe.Plan{}
	var peers []probe.Peer
	for _, name := range []string{"one", "two", "three"} {
		server, _ := node(t, a, name)
		plans[name] = probe.NewPlan(name)
		peers = append(peers, probe.Peer{Name: name, Address: daemon(t, probe.Offer(server), probe.NewResponder(plans[name].Point).Register)})
	}
	peers = append(peers, probe.Peer{Name: "gone", Address: localhost + ":1"})
	_, client := node(t, a, "me")
	told := make(chan *nodeapi.RoundTrips, 100)
	registry := prometheus.NewRegistry()
	p := probe.NewProber(probe.Config{Plan: probe.NewPlan("me"), Asker: probe.NewConnections(client), Traffic: probe.NewTraffic(),
		Tell: func(r *nodeapi.RoundTrips) { told <- r }, Registry: registry, Log: discard})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	p.SetPeers(peers)
	if r := <-told; len(r.GetMeasured()) == 0 {
		t.Errorf("told %v", r)
	}
	for len(p.Plan.Measured(time.Now())) < 3 {
		time.Sleep(ms)
	}
	stop()
	<-done
	families, err := registry.Gather()
	if err != nil || len(families) != 3 {
		t.Errorf("%v, %v", families, err)
	}
}

// What connections with traffic show, without a probe.
func TestTraffic(t *testing.T) {
	a := peertlstest.New(t)
	server, _ := node(t, a, "edge")
	_, client := node(t, a, "cloud")
	address := daemon(t, server)
	conf, _ := client(localhost)
	traffic, plan := probe.NewTraffic(), probe.NewPlan("cloud")
	var closed func()
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (stdnet.Conn, error) {
		c, err := (&tls.Dialer{Config: conf}).DialContext(ctx, network, address)
		if err == nil {
			closed = traffic.Opened(c.(*tls.Conn))
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	now := time.Now()
	for known := false; !known; now = now.Add(time.Second) {
		resp, err := (&http.Client{Transport: transport}).Get("https://" + address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		traffic.Look(now, plan)
		var m probe.Measured
		if m, known = plan.RTT("edge", now); known && (m.RTT <= 0 || m.RTT > time.Second) {
			t.Errorf("%+v", m)
		}
	}
	closed()
	if traffic.Following() != 0 {
		t.Error("a connection that was closed is followed")
	}
}

// What a probe costs both daemons together.
func BenchmarkAsk(b *testing.B) {
	a := peertlstest.New(b)
	server, _ := node(b, a, "edge")
	_, client := node(b, a, "cloud")
	there := coordinate.New("edge").Point()
	address := daemon(b, probe.Offer(server), probe.NewResponder(func() coordinate.Point { return there }).Register)
	asks := probe.NewConnections(client)
	defer asks.Keep(nil)
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	var rtts time.Duration
	for b.Loop() {
		rtt, _, err := asks.Ask(b.Context(), probe.Peer{Name: "edge", Address: address})
		if err != nil {
			b.Fatal(err)
		}
		rtts += rtt
		b.StopTimer()
		time.Sleep(60 * ms) // more often nobody asks
		b.StartTimer()
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N)/1000, "cpu-us/op")
	b.ReportMetric(float64(rtts.Microseconds())/float64(b.N), "rtt-us/op")
}
