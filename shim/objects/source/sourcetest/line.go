package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// nobody is an address where nothing listens: port 1 is tcpmux, which nobody has.
const nobody = "127.0.0.1:1"

// RunBehindABadLine runs what the suite has for a store at address, behind a line that
// breaks: the object arrives whole all the same, or the caller is told in time. open
// returns the store as it is reached by another address.
func RunBehindABadLine(t *testing.T, address string, open func(t *testing.T, address string) Store) {
	for name, in := range map[string]struct {
		// faults is how many connections break after some bytes: in the middle of an
		// answer's header, or (0 bytes) of its body.
		faults, bytes int64
		reset         bool
	}{
		"reset in the header": {4, 20, true},
		"reset in the body":   {4, 0, true},
		"cut in the header":   {4, 20, false},
		"cut in the body":     {4, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // The pauses between two tries take their time.
			line := startProxy(t, address)
			store := open(t, line.address)
			defer store.Close()
			if in.bytes == 0 {
				in.bytes = store.Part / 3
			}
			ref, content := store.putAs(t, name, 10*store.Part)
			line.bytes, line.reset = in.bytes, in.reset
			line.left.Store(in.faults)
			sink := &Sink{}
			err := store.Source.Fetch(t.Context(), ref, "", sink.Begin)
			sink.ended(t)
			if line.left.Load() > 0 {
				t.Error("nothing broke")
			}
			if err != nil || !bytes.Equal(sink.Content, content) {
				t.Errorf("the content is another, %v", err)
			}
		})
	}
	for name, title := range map[string]string{"broken for good": "StoreUnavailable", "nobody listens": "StoreUnavailable", "stalled": "StoreTimeout"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // The pauses between two tries take their time.
			line := startProxy(t, address)
			to := line.address
			if name == "nobody listens" {
				to = nobody
			}
			store := open(t, to)
			defer store.Close()
			ref, _ := store.putAs(t, name, 10*store.Part)
			line.bytes, line.reset = 20, true
			within := time.Minute
			if title == "StoreTimeout" {
				line.bytes, line.stalls = 2000, true
				within = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			line.left.Store(1 << 30)
			sink := &Sink{}
			err := store.Source.Fetch(ctx, ref, "", sink.Begin)
			sink.ended(t)
			if p := problem.Of(err); p.Title != title || title == "StoreTimeout" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// proxy is a line: it passes connections on, and breaks some of them on the way back.
type proxy struct {
	address, to string

	left          atomic.Int64 // connections still to break
	bytes         int64        // after so many of the answer
	reset, stalls bool         // how: by RST, by silence, else by FIN
	ctx           context.Context
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), to: to}
	ctx, cancel := context.WithCancel(context.Background())
	p.ctx = ctx
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.pass(client.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		conns.Wait()
	})
	return p
}

// pass ignores what goes wrong: connections are meant to.
func (p *proxy) pass(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	var up sync.WaitGroup
	up.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
	defer up.Wait()
	defer server.Close()
	defer client.Close()
	stop := context.AfterFunc(p.ctx, func() { _ = client.Close(); _ = server.Close() })
	defer stop()
	if p.left.Add(-1) < 0 {
		_, _ = io.Copy(client, server)
		return
	}
	_, _ = io.CopyN(client, server, p.bytes)
	switch {
	case p.stalls:
		<-p.ctx.Done()
	case p.reset:
		_ = client.SetLinger(0)
	}
}
