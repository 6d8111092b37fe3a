package connections

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/pool"
	"github.com/headstart-mesh/headstart/shim/session"
)

// sidecar dials for sandboxes.
type sidecar func(ctx context.Context) (net.Conn, error)

func (s sidecar) Dial(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
	return s(ctx)
}
func (sidecar) Join(context.Context, string, net.Conn, net.Conn) error {
	return errors.New("there is no shim")
}
func (sidecar) Targets(string, []netip.AddrPort) {}

// bubble is a node without a network, whose sandboxes want one destination.
type bubble struct {
	*Server
	t      *testing.T
	d      *destination
	events []string
}

// inBubble runs a test on a node where time passes when nothing else happens.
func inBubble(t *testing.T, d *nodeapi.Destination, dial sidecar, test func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t}
		var err error
		b.Server, err = New(Config{Shims: dial, SecretsDir: t.TempDir(), Metrics: noMetrics(), Log: slog.New(slog.DiscardHandler),
			Next:  func(ctx context.Context, _ string) string { <-ctx.Done(); return "" },
			Event: func(e *nodeapi.Event) { b.events = append(b.events, e.GetReason()+": "+e.GetMessage()) }})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		d.Name, d.Address, d.Origin = "orders", "127.0.0.1:1", "sandbox"
		b.Set([]*nodeapi.Destination{d})
		if b.d, err = b.list.get("orders", "shop"); err != nil {
			t.Fatal(err)
		}
		test(b)
	})
}

// sandbox has one start whose program has not asked yet.
func (b *bubble) sandbox(by string) *caller {
	sb := &sandbox{id: "cart", namespace: "shop", note: note{Function: "shop/cart", By: by}, aheads: map[string]*ahead{}}
	sb.ctx, sb.cancel = context.WithCancel(b.ctx)
	b.prepare(sb, "orders", b.d)
	return &caller{server: b.Server, sb: sb, name: "orders", d: b.d}
}

// ask has a program ask, as long as it may.
func (b *bubble) ask(c *caller, start session.Start) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), startTimeout)
	defer cancel()
	w, err := c.take(ctx, start)
	if err == nil {
		c.took(w.session.Start)
		b.t.Cleanup(func() { _ = w.conn.Close() })
	}
	return w.conn, err
}

// A program waits for its sidecar for as long as that needs, and nothing is said against the server. If it has been in vain,
// the program's own try has its own time.
func TestASlowSidecar(t *testing.T) {
	for name, took := range map[string]struct{ first, next time.Duration }{
		"slow": {first: aheadTimeout - time.Second}, "late": {first: aheadTimeout, next: openTimeout - time.Second},
	} {
		var dials atomic.Int64
		wait := func(ctx context.Context) (net.Conn, error) {
			time := time.NewTimer(took.next)
			if dials.Add(1) == 1 {
				time.Reset(took.first)
			}
			select {
			case <-time.C:
				c, _ := net.Pipe()
				return c, ctx.Err()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		inBubble(t, &nodeapi.Destination{Kind: "tcp"}, wait, func(b *bubble) {
			if _, err := b.ask(b.sandbox("socket"), ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if b.d.refusal != "" {
				t.Errorf("%s: the status says %q", name, b.d.refusal)
			}
		})
	}
}

// server is Redis' or PostgreSQL's, and counts log-ins.
type server struct {
	dials, logIns atomic.Int64
	serve         func(net.Conn) // what it does with what begins with a log-in
}

func (s *server) dial(context.Context) (net.Conn, error) {
	s.dials.Add(1)
	ours, theirs := net.Pipe()
	go func() {
		defer ours.Close()
		in := bufio.NewReader(ours)
		if _, err := in.Peek(1); err == nil {
			s.logIns.Add(1)
			s.serve(begun{ours, in})
		}
	}()
	return theirs, nil
}

// begun is a stream of which the first bytes have been read.
type begun struct {
	net.Conn
	io.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.Reader.Read(p) }

// says answers with the same each time.
func says(answer string) func(net.Conn) {
	return func(c net.Conn) {
		for b := make([]byte, 512); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			_, _ = io.WriteString(c, answer)
		}
	}
}

// Programs that speak TLS with the server leave no session unused. A stream alone waits for the next ones, and on it another
// program is logged in.
func TestABareStreamWaits(t *testing.T) {
	redis := &server{serve: says("+OK\r\n")}
	inBubble(t, &nodeapi.Destination{Kind: "redis"}, redis.dial, func(b *bubble) {
		for i, c := range []struct {
			start         session.Start
			dials, logIns int64
			way           string
		}{
			{session.Bare, 1, 0, wayAhead}, {session.Bare, 2, 0, wayAhead}, {"", 3, 1, wayAhead},
			{session.Bare, 5, 2, wayFresh}, // the session is left
		} {
			caller := b.sandbox("connect")
			synctest.Wait()
			_, err := b.ask(caller, c.start)
			if d, l := redis.dials.Load(), redis.logIns.Load(); err != nil || d != c.dials || l != c.logIns || caller.way != c.way {
				t.Errorf("start %d: %v, by way of %s, %d connections, %d log-ins", i, err, caller.way, d, l)
			}
			if i == 3 {
				if _, err := b.ask(caller, ""); err != nil || caller.way != wayAhead || redis.dials.Load() != 5 {
					t.Errorf("the session is not left: %v, by way of %s", err, caller.way)
				}
			}
		}
	})
}

// PostgreSQL ends a stream on which nobody logs in. One is given up before, and one that is taken has all its time.
func TestABareStreamExpires(t *testing.T) {
	postgres := &server{serve: says("")}
	inBubble(t, &nodeapi.Destination{Kind: "postgres"}, postgres.dial, func(b *bubble) {
		for after, dials := range map[time.Duration]int64{bareIdle - time.Second: 1, bareIdle + time.Second: 2} {
			postgres.dials.Store(0)
			caller := b.sandbox("connect")
			time.Sleep(after)
			c, err := b.ask(caller, session.Bare)
			if err != nil || postgres.dials.Load() != dials {
				t.Fatalf("after %v: %d connections, %v", after, postgres.dials.Load(), err)
			}
			time.AfterFunc(time.Hour, func() { _ = c.Close() })
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("after %v it ends with %v", after, err)
			}
		}
	})
}

// One that the pool is making when the program asks has all its time, too.
func TestABareStreamThatIsBeingMade(t *testing.T) {
	postgres := &server{serve: says("")}
	inBubble(t, &nodeapi.Destination{Kind: "postgres"}, postgres.dial, func(b *bubble) {
		b.d.config.Origin = "node"
		opening := make(chan bool)
		open := func(ctx context.Context, _ pool.Key) (waiting, error) {
			select {
			case opening <- true:
				<-opening
			case <-ctx.Done():
				return waiting{}, ctx.Err()
			}
			conn, err := postgres.dial(ctx)
			b.d.expires(conn)
			return waiting{conn: conn, session: &session.Session{Conn: conn, Start: session.Bare}}, err
		}
		b.pool.Close()
		b.pool = pool.New(pool.Config[waiting]{Open: open, Lost: b.config.Metrics.lost, Failed: b.failed})
		b.pool.Allow("orders", 1, time.Now().Add(time.Hour))
		caller := b.sandbox("connect")
		b.pool.Take(b.t.Context(), caller.key(session.Bare))
		<-opening
		got := make(chan waiting)
		go func() { w, _ := caller.waits(b.t.Context(), session.Bare); got <- w }()
		synctest.Wait()
		opening <- true
		w := <-got
		if w.conn == nil {
			t.Fatal("there is none")
		}
		time.AfterFunc(time.Hour, func() { _ = w.Close() })
		if _, err := w.conn.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A server that denies the log-in is asked by few, however many sandboxes start, until the pause has passed or the secret is
// another one. The function's owner hears of it once for each secret.
func TestALogInThatIsDenied(t *testing.T) {
	https := httptest.NewTLSServer(nil) // whose certificate nobody knows
	https.Close()
	handshake := func(c net.Conn) { _ = tls.Server(c, https.TLS).HandshakeContext(context.Background()) }
	for kind, c := range map[string]struct {
		serve func(net.Conn)
		words string
	}{
		"redis":    {says("-WRONGPASS no\r\n"), "WRONGPASS"},
		"tls":      {handshake, "certificate"},
		"postgres": {func(c net.Conn) { _, _ = c.Read(make([]byte, 8)); _, _ = c.Write([]byte{'S'}); handshake(c) }, "certificate"},
	} {
		d := &nodeapi.Destination{Kind: kind, User: "app"}
		if kind != "redis" {
			d.Tls = &nodeapi.DestinationTLS{}
		}
		asked := &server{serve: c.serve}
		inBubble(t, d, asked.dial, func(b *bubble) {
			b.starts.note("shop/cart", "orders", "")
			many := func(when string, most int64) {
				before := asked.logIns.Load()
				for range 100 {
					b.sandbox("socket")
				}
				time.Sleep(deniedPause / 2)
				if n := asked.logIns.Load() - before; n != most {
					t.Errorf("%s: %d log-ins %s", kind, n, when)
				}
			}
			many("at first", 1)
			many("at once", 0)
			time.Sleep(deniedPause)
			many("after the pause", 1)
			b.d.denials.renew()
			many("after a renewal", 1)
			for range 3 {
				if _, err := b.ask(b.sandbox("socket"), ""); err == nil {
					t.Errorf("%s: it is not denied", kind)
				}
			}
			if len(b.events) != 2 || !strings.HasPrefix(b.events[0], reasonDenied+": destination \"orders\": ") || !strings.Contains(b.events[0], c.words) {
				t.Errorf("%s: events %q", kind, b.events)
			}
		})
	}
}
