//go:build integration

package linkemu

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/probe"
)

// Daemons find out how long a link is, by probes and by what their other connections show,
// whatever the programs at its ends do meanwhile.
func TestDaemonsMeasureTheLink(t *testing.T) {
	for _, delay := range []time.Duration{250 * time.Microsecond, 25 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			r := newRig(t, Config{Delay: delay})
			address, client := r.daemon(t)
			want := 2 * delay
			// The link itself is late by some tenths of a millisecond, more on a busy machine.
			within := func(what string, got time.Duration) {
				t.Logf("%s %s of %s", what, got, want)
				if got < want || got > want+want/20+2*time.Millisecond {
					t.Errorf("%s: a round trip of %s, want %s", what, got, want)
				}
			}
			asks := probe.NewConnections(client)
			defer asks.Keep(nil)
			var rtts []time.Duration
			for range 20 {
				err := r.a.do(func() error {
					rtt, _, err := asks.Ask(t.Context(), probe.Peer{Name: "cloud", Address: address})
					rtts = append(rtts, rtt)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(60 * time.Millisecond) // more often nobody asks
			}
			slices.Sort(rtts)
			within("probes", rtts[len(rtts)/2])
			within("passing requests", r.pass(t, address, client))
		})
	}
}

// daemon serves what a node's daemon does for its peers at end B, and returns how to connect
// to it.
func (r *rig) daemon(t *testing.T) (address string, client func(string) (*tls.Config, error)) {
	t.Helper()
	authority, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files, err := authority.Issue("cloud", netip.MustParseAddr(addressB))
	if err != nil {
		t.Fatal(err)
	}
	server, mine, err := peertls.Load(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := r.b.do(func() (err error) { l, err = serve.TLS(addressB+":0", probe.Offer(server))(); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	// Slower than Linux waits before it acknowledges without an answer.
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(60 * time.Millisecond)
	})
	there := probe.NewPlan("cloud")
	served := make(chan error, 1)
	go func() {
		served <- serve.HTTP(ctx, slow, time.Second, slog.New(slog.DiscardHandler), probe.NewResponder(func() coordinate.Point { return there.Point() }).Register)(l)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), func(host string) (*tls.Config, error) { return peertls.ClientFor(mine, host), nil }
}

// pass sends requests over the link until the connection shows how long that is.
func (r *rig) pass(t *testing.T, address string, client func(string) (*tls.Config, error)) time.Duration {
	t.Helper()
	conf, err := client(addressB)
	if err != nil {
		t.Fatal(err)
	}
	traffic, plan := probe.NewTraffic(), probe.NewPlan("edge")
	var c *tls.Conn
	if err := r.a.do(func() (err error) { c, err = tls.Dial("tcp", address, conf); return err }); err != nil {
		t.Fatal(err)
	}
	closed := traffic.Opened(c)
	defer closed()
	transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	defer transport.CloseIdleConnections()
	for now := time.Now(); ; now = now.Add(2 * time.Second) {
		resp, err := (&http.Client{Transport: transport}).Post("https://"+address, "text/plain", io.LimitReader(zeros{}, 64<<10))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		traffic.Look(now, plan)
		for _, m := range plan.Measured(now) { // of the one peer that there is
			return time.Duration(m.GetRttUs()) * time.Microsecond
		}
		if time.Until(now) > time.Minute {
			t.Fatal("thirty requests show nothing")
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
