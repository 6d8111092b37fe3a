//go:build integration

package drivers_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is many times what a driver or a server takes, on a machine that is busy.
const limit = time.Minute

// front accepts programs' connections on a socket, as the daemon does, with at most one session that waits.
type front struct {
	t        *testing.T
	protocol session.Protocol
	dial     session.Dial
	end      func() // returns when all programs have ended

	mu      sync.Mutex
	last    session.Start
	waiting *session.Session
	taken   int // sessions that waited
	fresh   int
	failed  []error
	took    []time.Duration // by Accept
}

func (f *front) Last() session.Start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *front) Take(ctx context.Context, s session.Start) (*session.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.waiting; w != nil && w.Start == s {
		f.waiting = nil
		f.taken++
		return w, nil
	}
	if s == session.Bare {
		return session.Raw{}.Open(ctx, f.dial, s)
	}
	f.fresh++
	return f.protocol.Open(ctx, f.dial, s)
}

func (f *front) Dial(ctx context.Context) (net.Conn, error) { return f.dial(ctx) }

// fill has a session wait that suits the driver of before.
func (f *front) fill() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting != nil {
		f.waiting.Conn.Close()
	}
	var err error
	if f.waiting, err = f.protocol.Open(f.t.Context(), f.dial, f.last); err != nil {
		f.t.Fatal(err)
	}
}

// counts returns how many sessions were taken since it was asked last: those that waited, and fresh ones.
func (f *front) counts() (taken, fresh int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken, fresh, f.taken, f.fresh = f.taken, f.fresh, 0, 0
	return taken, fresh
}

// listen serves a protocol on a socket until the test ends.
func listen(t *testing.T, path string, p session.Protocol, dial session.Dial) *front {
	t.Helper()
	return listenOn(t, "unix", path, p, dial)
}

func listenOn(t *testing.T, network, address string, p session.Protocol, dial session.Dial) *front {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, protocol: p, dial: dial}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer client.Close()
				f.serve(ctx, client)
			})
		}
	})
	f.end = func() {
		l.Close()
		all.Wait()
	}
	t.Cleanup(func() {
		cancel()
		f.end()
		if f.waiting != nil {
			f.waiting.Conn.Close()
		}
	})
	return f
}

func (f *front) serve(ctx context.Context, client net.Conn) {
	begin := time.Now()
	s, err := f.protocol.Accept(ctx, client, f)
	f.mu.Lock()
	f.took = append(f.took, time.Since(begin))
	if err != nil {
		f.failed = append(f.failed, err)
	}
	if s != nil {
		f.last = s.Start
	}
	f.mu.Unlock()
	if s == nil {
		return
	}
	defer s.Conn.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(client, s.Conn)
		client.Close()
	}()
	io.Copy(s.Conn, client)
	s.Conn.Close()
	<-done
}

// socket is a path that is short enough for one.
func socket(t *testing.T, name string) string { return filepath.Join(t.TempDir(), name) }
