package proxy_test

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// tcpClosed is the state of a connection that has ended (net/tcp_states.h, TCP_CLOSE).
const tcpClosed = 7

// enough is many times what a write takes that fails.
const enough = 20 * time.Millisecond

// A daemon that answers in the middle of a body and closes the connection is heard, though the
// body cannot be sent on.
func TestTheLastWordsOfAPeerAreHeard(t *testing.T) {
	ca := peertlstest.New(t)
	serverTLS, _ := ca.Load(t, "edge-2", net.IPv4(127, 0, 0, 1))
	_, clientTLS := ca.Load(t, "edge-1", net.IPv4(127, 0, 0, 1))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const answer = "the function closed the connection"
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			if _, err := tls.Server(c, serverTLS).Write([]byte(answer)); err != nil {
				return err
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			return c.Close()
		}()
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, peertls.ClientFor(clientTLS, "127.0.0.1"))
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := proxy.NewPeerConn(conn)
	t.Cleanup(func() { _ = c.Close() })
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection has ended", func() bool { return tcpState(t, raw) == tcpClosed })
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 1<<10))
		failed <- err
	}()
	select {
	case err := <-failed:
		t.Fatalf("the write ends before anything was read: %v", err)
	case <-time.After(enough): // for a write that does not wait; too short a time shows nothing, and is no failure
	}
	got := make([]byte, len(answer))
	if _, err := c.Read(got[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(got[1:]); err != nil || string(got) != answer {
		t.Fatalf("%q: %v", got, err)
	}
	if _, err := c.Read(got); err == nil {
		t.Error("there is more")
	}
	select {
	case err := <-failed:
		if err == nil {
			t.Error("the write succeeds")
		}
	case <-time.After(soon):
		t.Error("the write does not end")
	}
}

// Who has closed a connection does not wait for what nobody reads any more.
func TestAWriteEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := proxy.NewPeerConn(tls.Client(here, &tls.Config{ServerName: "edge-2", MinVersion: tls.VersionTLS13}))
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("a body"))
			failed <- err
		}()
		if _, err := there.Read(make([]byte, 1)); err != nil { // it has begun
			t.Fatal(err)
		}
		began := time.Now()
		_ = c.Close()
		if err := <-failed; err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		_ = there.Close()
	})
}

func tcpState(t *testing.T, c net.Conn) (state uint8) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A body that waits for its function in the connection is no peer that is gone.
func TestALargeBodyMayWaitInTheConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := tls.Client(raw, &tls.Config{})
	for _, carries := range []struct {
		body int64
		want time.Duration
	}{{0, proxy.PeerSilence}, {-1, 0}, {1000, proxy.PeerSilence}, {1 << 20, 0}, {0, proxy.PeerSilence}} {
		if got, err := proxy.Silence(c, carries.body); err != nil || got != carries.want {
			t.Errorf("with %d bytes it is ended after %v, want %v: %v", carries.body, got, carries.want, err)
		}
	}
}
