package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// asked is a body that notes for how much it is asked at a time.
type asked struct {
	io.Reader
	most atomic.Int64
}

func (a *asked) Read(p []byte) (int, error) {
	a.most.Store(max(a.most.Load(), int64(len(p)))) // one reads at a time
	return a.Reader.Read(p)
}

// A large body goes to its function in large chunks, and what of it has come does not wait for
// the rest.
func TestBodiesAreSentInLargeChunks(t *testing.T) {
	const half = 1 << 20
	arrived, got := make(chan struct{}), make(chan []byte, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first := make([]byte, half)
		if _, err := io.ReadFull(r.Body, first); err != nil {
			t.Error(err)
		}
		close(arrived)
		rest, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- append(first, rest...)
	}))
	defer s.Close()
	content := bytes.Repeat([]byte("0123456789abcdef"), 2*half/16)
	comes, send := io.Pipe()
	body := &asked{Reader: comes}
	go func() {
		_, _ = send.Write(content[:half]) // the other end fails with it
		<-arrived
		_, _ = send.Write(content[half:])
		_ = send.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 2 * half
	resp, err := proxy.NewTransport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if !bytes.Equal(<-got, content) {
		t.Error("the function got other bytes")
	}
	if most := body.most.Load(); most < proxy.ChunkSize {
		t.Errorf("at most %d bytes are asked for at a time", most)
	}
}

// Bodies that do not come on have so many chunks together and no more; others arrive all the same.
func TestSlowBodiesHaveSoManyChunks(t *testing.T) {
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
	)
	defer s.Close()
	send := func(body io.Reader, size int) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
		if err != nil {
			return nil, err
		}
		req.ContentLength = int64(size)
		return proxy.NewTransport().RoundTrip(req)
	}
	come := make(chan struct{})
	var slow sync.WaitGroup
	for range proxy.ChunksMost + 1 {
		slow.Go(func() {
			resp, err := send(io.MultiReader(after(func() { <-come }), strings.NewReader("it")), 2)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "it" {
				t.Errorf("a slow body arrives as %q: %v", got, err)
			}
		})
	}
	eventually(t, "all chunks are taken", func() bool { return proxy.ChunksTaken() == proxy.ChunksMost })
	content := strings.Repeat("0123456789abcdef", proxy.ChunkSize/4)
	body := &asked{Reader: strings.NewReader(content)}
	resp, err := send(body, len(content))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != content {
		t.Errorf("other bytes arrive: %v", err)
	}
	_ = resp.Body.Close()
	if most := body.most.Load(); most >= proxy.ChunkSize {
		t.Errorf("%d bytes of it are asked for at a time", most)
	}
	close(come)
	slow.Wait()
	eventually(t, "no chunk is taken", func() bool { return proxy.ChunksTaken() == 0 })
}

// BenchmarkDeliverBody is the way of a body of 32 MB from the buffer to a function, which
// throws it away.
func BenchmarkDeliverBody(b *testing.B) {
	const size = 32e6
	dir, err := os.MkdirTemp("/dev/shm", "headstart-buffer")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	buf, err := buffer.Open(dir, size)
	if err != nil {
		b.Fatal(err)
	}
	defer buf.Close()
	e, err := buf.Create("0123456789abcdef0123456789abcdef", "default/upload", size)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Release()
	if _, err := e.WriteAt(make([]byte, size), 0); err != nil {
		b.Fatal(err)
	}
	if err := e.Complete(); err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer s.Close()
	plain := proxy.NewTransport()
	plain.DialContext = nil
	for name, transport := range map[string]*http.Transport{
		"in large chunks": proxy.NewTransport(), "as net.TCPConn copies": plain,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL, e.NewReader(b.Context()))
				if err != nil {
					b.Fatal(err)
				}
				req.ContentLength = size
				resp, err := transport.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}
