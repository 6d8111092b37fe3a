//go:build integration

package smuggling

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// function is a program that takes requests.
type function struct {
	address netip.AddrPort
	// seen returns what it was asked since, when all its connections have ended.
	seen func() ([]request, error)
}

// count is of connections.
type count struct {
	mu sync.Mutex
	n  int
}

func (c *count) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func (c *count) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n == 0
}

// until waits for what another goroutine or process is about to do.
func until(is func() bool) bool {
	for deadline := time.Now().Add(patience); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// settled waits until a function has taken up all connections that were made to it, and all have ended. It
// makes one more and asks nothing by it: the function ends that, and takes it up after those before.
func settled(address string, connections *count) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("a connection is not taken up: %w", err)
	}
	if !until(connections.none) {
		return errors.New("connections stay open")
	}
	return nil
}

// rawFunction records the bytes of each connection, and answers the first request of each.
func rawFunction(t testing.TB) function {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections count
	var mu sync.Mutex
	var came [][]byte
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.add(1)
			running.Go(func() {
				defer connections.add(-1)
				raw := record(c)
				mu.Lock()
				defer mu.Unlock()
				came = append(came, raw)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return function{netip.MustParseAddrPort(l.Addr().String()), func() (all []request, err error) {
		if err := settled(l.Addr().String(), &connections); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, raw := range came {
			got, err := strict(raw)
			if err != nil || len(got) > 1 {
				return nil, fmt.Errorf("a connection had %d requests, %w: %q", len(got), err, raw)
			}
			all = append(all, got...)
		}
		came = nil
		return all, nil
	}}
}

// record reads to the connection's end, and answers once.
func record(c net.Conn) (raw []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	part, answered, asked := make([]byte, 32<<10), false, false
	for {
		n, err := c.Read(part)
		raw = append(raw, part[:n]...)
		if got, malformed := strict(raw); malformed == nil && len(got) > 0 && !answered {
			if got[0].Header["expect"] != nil && !asked {
				asked = true
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			if answered = got[0].Whole; answered {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nx-echo: %s\r\nContent-Length: 0\r\n\r\n", got[0].id())
			}
		}
		if err != nil {
			return raw
		}
	}
}

// goFunction is net/http's server.
func goFunction(t testing.TB) function {
	var connections count
	var mu sync.Mutex
	var came []*request
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := understood(r)
		mu.Lock()
		came = append(came, &got)
		mu.Unlock()
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		got.Body, got.Whole, got.Trailer = string(body), err == nil, lower(r.Trailer)
		mu.Unlock()
		w.Header().Set("x-echo", r.Header.Get(filterapi.HeaderRequest))
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnState = func(_ net.Conn, to http.ConnState) {
		switch to {
		case http.StateNew:
			connections.add(1)
		case http.StateClosed, http.StateHijacked:
			connections.add(-1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return function{netip.MustParseAddrPort(s.Listener.Addr().String()), func() (all []request, err error) {
		if err := settled(s.Listener.Addr().String(), &connections); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, one := range came {
			all = append(all, *one)
		}
		came = nil
		return all, nil
	}}
}

// pythonFunction is the server of testdata/server.py.
func pythonFunction(t testing.TB) function {
	cmd := exec.Command("python3", "testdata/server.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the function does not start: %v", err)
	}
	address := netip.MustParseAddrPort("127.0.0.1:" + strings.TrimSpace(port))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * patience}
	flush, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+"/flush", nil)
	if err != nil {
		t.Fatal(err)
	}
	flush.Header.Set("x-flush", "1")
	return function{address, func() (all []request, err error) {
		answer, err := client.Do(flush.Clone(context.Background()))
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		var came []struct {
			Method, Target, Body []byte
			Header               [][2][]byte
			Whole                bool
		}
		if err := json.NewDecoder(answer.Body).Decode(&came); err != nil {
			return nil, err
		}
		for _, one := range came {
			r := request{Method: string(one.Method), Target: string(one.Target), Header: map[string][]string{}, Body: string(one.Body), Whole: one.Whole}
			for _, h := range one.Header {
				name := strings.ToLower(string(h[0]))
				r.Header[name] = append(r.Header[name], string(h[1]))
			}
			r.Host = strings.Join(r.Header["host"], ",")
			all = append(all, r)
		}
		return all, nil
	}}
}
