package serve_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// process is one that serves a path, until it is ended.
type process struct {
	end    context.CancelFunc
	ended  chan error
	served atomic.Int64
}

func begin(t *testing.T, path string) *process {
	t.Helper()
	l, err := serve.UnixFor(path, -1)()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	p := &process{end: end, ended: make(chan error, 1)}
	answer := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		p.served.Add(1)
		_, _ = w.Write(b)
	}
	go func() {
		p.ended <- serve.HTTP(ctx, http.HandlerFunc(answer), time.Hour, discard, serve.H2C, serve.ForGateways)(l)
	}()
	return p
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.end()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// post sends a request by a connection as Envoy does: without another try.
func post(c net.Conn, r *bufio.Reader, body string) (keep bool, err error) {
	head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	if _, err := io.WriteString(c, head+body); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && string(b) != body {
		err = errors.New("the answer is " + string(b))
	}
	return !resp.Close, err
}

// A connection that waits for a request outlives the process, if another has the path.
func TestConnectionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := begin(t, path)
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	used := conns[:2] // the third has brought nothing yet
	for _, c := range used {
		if keep, err := post(c, bufio.NewReader(c), "first"); err != nil || !keep {
			t.Fatal(keep, err)
		}
	}
	second := begin(t, path)
	first.stop(t)
	for _, c := range used {
		if keep, err := post(c, bufio.NewReader(c), "other"); err != nil || !keep {
			t.Error(keep, err)
		}
	}
	if first.served.Load() != 2 || second.served.Load() != 2 {
		t.Errorf("the first has served %d, the second %d", first.served.Load(), second.served.Load())
	}
	second.stop(t) // nobody has the path
	if _, err := post(conns[0], bufio.NewReader(conns[0]), "third"); err == nil {
		t.Error("the end of the last process keeps a connection")
	}
}

// A connection of HTTP/2 ends as it always does: nobody waits for it.
func TestHTTP2IsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := begin(t, path)
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	for range 2 {
		resp, err := client.Post("http://a/", "", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" || resp.ProtoMajor != 2 {
			t.Error(string(b), resp.Proto, err)
		}
		_ = resp.Body.Close()
		if first != nil {
			second := begin(t, path)
			defer second.stop(t)
			first.stop(t)
			first = nil
		}
	}
}

// Processes follow each other while a gateway uses all its connections, which no process can know of: no request is lost.
func TestNoRequestIsLostWhileASocketIsTakenOver(t *testing.T) {
	for _, pause := range []time.Duration{60 * time.Microsecond, 2 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) { takeOvers(t, pause) })
	}
}

func takeOvers(t *testing.T, pause time.Duration) {
	path := filepath.Join(t.TempDir(), "s")
	now := begin(t, path)
	var gateway sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var sent, lost atomic.Int64
	for range 32 {
		gateway.Go(func() {
			for ctx.Err() == nil {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Error(err)
					return
				}
				for r, keep := bufio.NewReader(c), true; keep && ctx.Err() == nil; {
					time.Sleep(rand.N(pause)) // what a gateway has to do at random
					sent.Add(1)
					if keep, err = post(c, r, "12345"); err != nil {
						lost.Add(1)
						t.Log(err)
						keep = false
					}
				}
				_ = c.Close()
			}
		})
	}
	for range 100 {
		next := begin(t, path)
		now.stop(t)
		now = next
	}
	stop()
	gateway.Wait()
	now.stop(t)
	if n := lost.Load(); n > 0 {
		t.Errorf("%d of %d requests are lost", n, sent.Load())
	}
}

// What a stranger to the protocol sends to the socket for connections changes nothing.
func TestNoConnectionIsHandedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := begin(t, path)
	for _, says := range []string{"", "x", strings.Repeat("x", 1<<10)} {
		c, err := net.Dial("unix", path+".kept")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, says) // it may be closed already
		if half, is := c.(*net.UnixConn); is {
			_ = half.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := post(c, bufio.NewReader(c), "still"); err != nil {
		t.Error(err)
	}
	p.stop(t)
}
