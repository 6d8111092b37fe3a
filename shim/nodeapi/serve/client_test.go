package serve_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// listeners are of the kinds by which requests come.
func listeners(t *testing.T) map[string]func() (net.Listener, func() (net.Conn, error)) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	trusted := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	must := func(l net.Listener, err error) net.Listener {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return map[string]func() (net.Listener, func() (net.Conn, error)){
		"unix": func() (net.Listener, func() (net.Conn, error)) {
			path := filepath.Join(t.TempDir(), "s")
			return must(serve.Unix(path)()), func() (net.Conn, error) { return net.Dial("unix", path) }
		},
		"TLS": func() (net.Listener, func() (net.Conn, error)) {
			l := must(serve.TLS("127.0.0.1:0", certified.TLS)())
			return l, func() (net.Conn, error) {
				return tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
			}
		},
		"one of a limited number": func() (net.Listener, func() (net.Conn, error)) {
			l := must(serve.TCP("127.0.0.1:0", serve.Crowd{All: 1})())
			return l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
		},
	}
}

// serving serves on l, to the test's end.
func serving(t *testing.T, l net.Listener, h http.HandlerFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve.HTTP(ctx, h, hasty, discard)(l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A client that leaves is noticed behind what nobody has read of its body.
func TestAClientThatLeaves(t *testing.T) {
	for name, listen := range listeners(t) {
		t.Run(name, func(t *testing.T) {
			l, dial := listen()
			arrived, noticed := make(chan struct{}), make(chan struct{})
			serving(t, l, func(_ http.ResponseWriter, r *http.Request) {
				defer close(noticed)
				left := make(chan struct{})
				defer serve.OnLeft(r.Context(), func() { close(left) })()
				close(arrived)
				<-left
				panic(http.ErrAbortHandler) // or the server would wait a while for the body
			})
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\na part of it"); err != nil {
				t.Fatal(err)
			}
			<-arrived
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			<-noticed
		})
	}
}

// Of a client that stays nothing is said, whatever it sends, and its connection is as it was.
func TestAClientThatStays(t *testing.T) {
	for name, listen := range listeners(t) {
		t.Run(name, func(t *testing.T) {
			l, dial := listen()
			serving(t, l, func(w http.ResponseWriter, r *http.Request) {
				forget := serve.OnLeft(r.Context(), func() { t.Error("it has not left") })
				body, err := io.ReadAll(r.Body)
				forget()
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(body)
			})
			c := &http.Client{Timeout: patient, Transport: &http.Transport{MaxConnsPerHost: 1,
				DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }}}
			defer c.CloseIdleConnections()
			for range 3 {
				body, write := io.Pipe()
				go func() {
					for range 10 {
						_, _ = io.WriteString(write, "a part ")
					}
					_ = write.Close()
				}()
				resp, err := c.Post("http://a/", "", body)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); err != nil || len(got) != 70 {
					t.Errorf("%q, %v", got, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// A request without a connection, as of an entry of a stream, has no client to leave.
func TestNobodyToLeave(t *testing.T) {
	serve.OnLeft(t.Context(), func() { t.Error("nobody was there") })()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	serve.OnLeft(serve.WithConnection(t.Context(), here), func() { t.Error("nobody can tell") })()
}

// As many connections as there are places are open; the next one has its turn when one is closed,
// and nobody waits for that at the end.
func TestLimit(t *testing.T) {
	limited, err := serve.TCP("127.0.0.1:0", serve.Crowd{All: 2})()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := limited.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", limited.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	defer second.Close()
	select {
	case <-accepted:
		t.Error("a third one is open")
	case <-time.After(hasty):
	}
	for range 2 { // which is one place
		_ = first.Close()
	}
	third := <-accepted
	defer third.Close()
	if err := limited.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("it goes on")
	}
}
