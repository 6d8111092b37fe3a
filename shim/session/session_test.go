package session

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is many times what any test takes.
const limit = 20 * time.Second

// sessions opens those that are asked for, by a protocol and a server, and remembers what they were.
type sessions struct {
	t        *testing.T
	protocol Protocol
	dial     Dial
	last     Start
	waiting  *Session // what Take returns for its start
	err      error    // what Take returns

	taken []Start
}

func (s *sessions) Last() Start { return s.last }

func (s *sessions) Take(ctx context.Context, start Start) (*Session, error) {
	s.taken = append(s.taken, start)
	if s.err != nil {
		return nil, s.err
	}
	if w := s.waiting; w != nil && w.Start == start {
		s.waiting = nil
		return w, nil
	}
	if start == Bare {
		return Raw{}.Open(ctx, s.dial, start)
	}
	return s.protocol.Open(ctx, s.dial, start)
}

func (s *sessions) Dial(ctx context.Context) (net.Conn, error) { return s.dial(ctx) }

// listen serves each connection by serve, which knows its number, until the test ends.
func listen(t *testing.T, serve func(number int, conn net.Conn)) Dial {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for number := 1; ; number++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			all.Go(func() {
				defer conn.Close()
				serve(number, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
}

// client is a program's end of a connection that is accepted.
type client struct {
	net.Conn
	t       *testing.T
	program net.Conn // the daemon's end
	done    chan struct{}
	session *Session
	err     error
}

// accept has a protocol accept a connection.
func accept(ctx context.Context, t *testing.T, p Protocol, from Sessions) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	ours.SetDeadline(time.Now().Add(limit))
	c := &client{Conn: ours, t: t, program: theirs, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.session, c.err = p.Accept(ctx, theirs, from)
		if c.session == nil {
			theirs.Close()
		}
	}()
	t.Cleanup(func() {
		ours.Close()
		<-c.done
		theirs.Close()
		if c.session != nil {
			c.session.Conn.Close()
		}
	})
	return c
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("sending %q: %v", b, err)
	}
}

// result waits until the connection is accepted.
func (c *client) result() (*Session, error) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(limit):
		c.t.Fatal("it is not accepted")
	}
	return c.session, c.err
}

// protocols are all of them.
var protocols = map[string]Protocol{"postgres": Postgres{Name: "orders", User: "app"}, "redis": Redis{Name: "cache"}}

func TestClientLeaves(t *testing.T) {
	for name, p := range protocols {
		from := &sessions{t: t}
		c := accept(t.Context(), t, p, from)
		c.Close()
		if s, err := c.result(); s != nil || err != nil || len(from.taken) > 0 {
			t.Errorf("%s: %v, %v, taken %q", name, s, err, from.taken)
		}
	}
}

// A client that says nothing is not waited for any longer than the context lasts.
func TestClientIsSilent(t *testing.T) {
	for name, p := range protocols {
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := accept(ctx, t, p, &sessions{t: t})
		cancel(over)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := c.result(); s != nil || !errors.Is(err, over) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// Neither is a server.
func TestServerIsSilent(t *testing.T) {
	for name, p := range protocols {
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		dial := listen(t, func(_ int, conn net.Conn) {
			conn.Read(make([]byte, 1))
			cancel(over)
			io.Copy(io.Discard, conn)
		})
		if s, err := p.Open(ctx, dial, ""); s != nil || err == nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestRaw(t *testing.T) {
	dial := listen(t, func(_ int, conn net.Conn) { conn.Write([]byte("hello")) })
	c := accept(t.Context(), t, Raw{}, &sessions{t: t, protocol: Raw{}, dial: dial})
	s, err := c.result()
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(s.Conn); string(said) != "hello" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	refused := errors.New("refused")
	c = accept(t.Context(), t, Raw{}, &sessions{t: t, err: refused})
	if s, err := c.result(); s != nil || !errors.Is(err, refused) {
		t.Errorf("%v, %v", s, err)
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		Refusal
		denied, full bool
	}{
		{Refusal: Refusal{Code: "28P01"}, denied: true},
		{Refusal: Refusal{Code: "3D000"}, denied: true},
		{Refusal: Refusal{Code: "53300"}, full: true},
		{Refusal: Refusal{Code: "57P03"}},
		{Refusal: Refusal{Code: "WRONGPASS"}, denied: true},
		{Refusal: Refusal{Code: "ERR", Message: "max number of clients reached"}, full: true},
		{Refusal: Refusal{Code: "LOADING"}},
	} {
		if c.Denied() != c.denied || c.Full() != c.full {
			t.Errorf("%v: denied %v, full %v", &c.Refusal, c.Denied(), c.Full())
		}
	}
}
