package peertls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
)

// handshake connects the two and returns whom the server saw and what each side says.
func handshake(t *testing.T, server, client *tls.Config) (name string, serverErr, clientErr error) {
	t.Helper()
	// Not net.Pipe: it has no buffer, and an alert would wait for the other's flight.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.Close()
		conn := tls.Server(s, server)
		if serverErr = conn.Handshake(); serverErr != nil {
			return
		}
		if name, serverErr = peertls.PeerName(conn.ConnectionState()); serverErr != nil {
			return
		}
		_, serverErr = conn.Write([]byte("."))
	}()
	conn := tls.Client(c, client)
	// In TLS 1.3 a client learns with its first read that the server refused it.
	if _, clientErr = conn.Read(make([]byte, 1)); clientErr == nil {
		if _, err := peertls.PeerName(conn.ConnectionState()); err != nil {
			t.Errorf("client: %v", err)
		}
	}
	c.Close()
	<-done
	return name, serverErr, clientErr
}

func TestServerKnowsItsClientByItsCertificate(t *testing.T) {
	a := peertlstest.New(t)
	server, _ := a.Load(t, "controlplane")
	_, client := a.Load(t, "edge-1")
	name, serverErr, clientErr := handshake(t, server, peertls.ClientFor(client, "controlplane"))
	if name != "edge-1" || serverErr != nil || clientErr != nil {
		t.Errorf("name %q, server %v, client %v", name, serverErr, clientErr)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	ours, theirs := peertlstest.New(t), peertlstest.New(t)
	server, client := ours.Load(t, "controlplane")
	_, stranger := theirs.Load(t, "edge-1")

	// A stranger that does not mind who we are, so that only our refusal counts.
	careless := peertls.ClientFor(stranger, "controlplane")
	careless.InsecureSkipVerify = true
	anonymous := careless.Clone()
	anonymous.Certificates = nil
	old := peertls.ClientFor(client, "controlplane")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12

	for what, c := range map[string]struct {
		client *tls.Config
		want   string // of the side that refuses
	}{
		"certificate of another authority": {careless, "certificate"},
		"no certificate":                   {anonymous, "didn't provide a certificate"},
		"TLS 1.2":                          {old, "unsupported versions"},
	} {
		_, serverErr, clientErr := handshake(t, server, c.client)
		if serverErr == nil || clientErr == nil {
			t.Errorf("%s: accepted", what)
		} else if !strings.Contains(serverErr.Error(), c.want) && !strings.Contains(clientErr.Error(), c.want) {
			t.Errorf("%s: server %v, client %v", what, serverErr, clientErr)
		}
	}
}

func TestClientRefusesTheWrongServer(t *testing.T) {
	ours, theirs := peertlstest.New(t), peertlstest.New(t)
	_, client := ours.Load(t, "edge-1")
	named, _ := ours.Load(t, "edge-2")
	foreign, _ := theirs.Load(t, "controlplane")

	var wrongName x509.HostnameError
	if _, _, err := handshake(t, named, peertls.ClientFor(client, "controlplane")); !errors.As(err, &wrongName) {
		t.Errorf("server of another name: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if _, _, err := handshake(t, foreign, peertls.ClientFor(client, "controlplane")); !errors.As(err, &unknown) {
		t.Errorf("server of another authority: %v", err)
	}
	if _, _, err := handshake(t, named, peertls.Named(peertls.ClientFor(client, "edge-2"), "edge-2")); err != nil {
		t.Errorf("server of the common name: %v", err)
	}
	other := peertls.Named(peertls.ClientFor(client, "edge-2"), "edge-3")
	if _, _, err := handshake(t, named, other); err == nil || !strings.Contains(err.Error(), `the certificate is of "edge-2"`) {
		t.Errorf("server of another common name: %v", err)
	}
	if _, _, err := handshake(t, named, client); err == nil {
		t.Error("dialed without a name")
	}
}

func TestPeerOfAnUnverifiedConnection(t *testing.T) {
	claimed := &x509.Certificate{Subject: pkix.Name{CommonName: "edge-1"}}
	states := map[string]tls.ConnectionState{
		"no certificate": {},
		"only claimed":   {PeerCertificates: []*x509.Certificate{claimed}},
		"without a name": {VerifiedChains: [][]*x509.Certificate{{{}}}},
		"an empty chain": {VerifiedChains: [][]*x509.Certificate{{}}},
	}
	for what, state := range states {
		if name, err := peertls.PeerName(state); !errors.Is(err, peertls.ErrNoPeer) {
			t.Errorf("%s: %q, %v", what, name, err)
		}
	}
}

func TestPeerOfAGRPCContext(t *testing.T) {
	ctx := context.Background()
	verified := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "edge-1"}}}}}
	name, err := peertls.Peer(peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: verified}}))
	if name != "edge-1" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	for what, ctx := range map[string]context.Context{
		"no peer":    ctx,
		"plain text": peer.NewContext(ctx, &peer.Peer{}),
	} {
		if name, err := peertls.Peer(ctx); !errors.Is(err, peertls.ErrNoPeer) {
			t.Errorf("%s: %q, %v", what, name, err)
		}
	}
}

func TestLoadNamesTheFileAtFault(t *testing.T) {
	dir := t.TempDir()
	peertlstest.New(t).Write(t, dir, "edge-1")
	file := func(n string) string { return filepath.Join(dir, n) }
	if err := os.WriteFile(file("empty.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cert, key, ca, want string }{
		{"absent.pem", "edge-1.key", "ca.pem", "absent.pem"},
		{"edge-1.pem", "absent.key", "ca.pem", "absent.key"},
		{"edge-1.pem", "edge-1.key", "absent.pem", "absent.pem"},
		{"edge-1.pem", "edge-1.key", "empty.pem", "empty.pem"},
	} {
		_, _, err := peertls.Load(file(c.cert), file(c.key), file(c.ca))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
