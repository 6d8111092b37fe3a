package connections

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// secured is a listener of TLS of at most a version, and what clients are to know of it.
func secured(t *testing.T, version uint16) (net.Listener, *nodeapi.DestinationTLS) {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	https.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12, MaxVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	return l, &nodeapi.DestinationTLS{Roots: string(roots), ServerName: "example.com"}
}

func accepted(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// A stream that the daemon cuts off does not look like a whole one to the server, by TLS neither: an upload would count. Until
// then, Drain waits for it.
func TestAStreamThatIsCutOff(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	tls12, known12 := secured(t, tls.VersionTLS12)
	tls13, known13 := secured(t, tls.VersionTLS13)
	for name, c := range map[string]struct {
		net.Listener
		kind string
		tls  *nodeapi.DestinationTLS
	}{"TCP": {plain, "tcp", nil}, "TLS 1.2": {tls12, "tls", known12}, "TLS 1.3": {tls13, "tls", known13}} {
		r := newRig(t, &nodeapi.Destination{Name: "ledger", Kind: c.kind, Tls: c.tls, Address: c.Addr().String(), Origin: "sandbox"})
		r.describe("cart", wants("socket", "ledger"))
		arrived := make(chan net.Conn, 1)
		go func() {
			server := accepted(t, c)
			if said, err := bufio.NewReader(io.LimitReader(server, 5)).ReadString('\n'); err != nil {
				t.Errorf("%s: %q, %v", name, said, err)
			}
			arrived <- server
		}()
		program := r.dial("ledger", c.kind+".sock")
		if _, err := io.WriteString(program, "half\n"); err != nil {
			t.Fatal(err)
		}
		server := <-arrived
		ctx, cancel := context.WithTimeout(t.Context(), 2*drainLook)
		if r.Drain(ctx); ctx.Err() == nil {
			t.Errorf("%s: Drain does not wait", name)
		}
		cancel()
		r.set.Close()
		r.Close()
		if n, err := server.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the server got %d bytes, %v", name, n, err)
		}
		_, _ = program.Read(make([]byte, 1))
		r.Drain(t.Context())
	}
}

// A stream that breaks off at one end breaks off at the other.
func TestAStreamThatBreaksOff(t *testing.T) {
	for _, broken := range []int{0, 1} {
		var outer, inside [2]net.Conn
		for i := range outer {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if outer[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
				t.Fatal(err)
			}
			inside[i] = accepted(t, l)
			_ = l.Close()
		}
		_ = outer[broken].(*net.TCPConn).SetLinger(0)
		_ = outer[broken].Close()
		pump(t.Context(), inside[0], inside[1])
		whole := outer[1-broken]
		_ = whole.SetDeadline(time.Now().Add(patience))
		if n, err := whole.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("end %d: %d bytes came, %v", 1-broken, n, err)
		}
		_ = whole.Close()
	}
}

// TLS with a server of the kind tls is the node's, by the socket of a sandbox that is connected by connect(2) as well.
func TestTheSocketsTLS(t *testing.T) {
	l, known := secured(t, tls.VersionTLS13)
	for _, origin := range []string{"node", "sandbox"} {
		r := newRig(t, &nodeapi.Destination{Name: "ledger", Kind: "tls", Tls: known, Address: l.Addr().String(), Origin: origin})
		r.describe("cart", wants("connect", "ledger"))
		echoed := make(chan error, 1)
		go func() {
			server := accepted(t, l)
			said, err := bufio.NewReader(server).ReadString('\n')
			_, failed := io.WriteString(server, said)
			echoed <- errors.Join(err, failed)
		}()
		program := r.dial("ledger", "tls.sock")
		if _, err := io.WriteString(program, "hello\n"); err != nil {
			t.Error(err)
		}
		if said, err := bufio.NewReader(program).ReadString('\n'); said != "hello\n" {
			t.Errorf("origin %s: %q, %v", origin, said, err)
		}
		if err := <-echoed; err != nil {
			t.Errorf("origin %s: the server: %v", origin, err)
		}
		r.stop()
	}
}
