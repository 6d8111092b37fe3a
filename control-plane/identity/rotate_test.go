package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// revocations is a list that a test changes.
type revocations []string

func (r revocations) Revoked(context.Context) ([]string, error) { return r, nil }

func refresh(t *testing.T, a *identity.Authority, s identity.Store, revoked ...string) {
	t.Helper()
	if _, err := a.Refresh(t.Context(), s, revocations(revoked)); err != nil {
		t.Fatal(err)
	}
}

// roots are the authorities that a daemon trusts which reads what is published now.
func roots(t *testing.T, m *memory) (*x509.CertPool, int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := x509.NewCertPool()
	p.AppendCertsFromPEM([]byte(m.public))
	return p, strings.Count(m.public, "BEGIN CERTIFICATE")
}

// While an authority is replaced, no certificate that is alive stops to count, also with daemons that hear of the new
// authority minutes later, and with replicas that take turns.
func TestAnAuthorityIsReplacedWithAnOverlap(t *testing.T) {
	for what, begin := range map[string]func(t *testing.T, s *memory){
		"asked for":      func(_ *testing.T, s *memory) { s.kept.Rotate = true },
		"before its end": func(*testing.T, *memory) { time.Sleep(9*365*24*time.Hour + time.Hour) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &memory{}
				first, err := identity.Open(t.Context(), s, namespace)
				if err != nil {
					t.Fatal(err)
				}
				second, err := identity.Open(t.Context(), s, namespace)
				if err != nil {
					t.Fatal(err)
				}
				old := string(first.Certificate())
				begin(t, s)
				var alive []*x509.Certificate
				stale, _ := roots(t, s) // what a daemon reads five minutes late
				for minute := 0; minute < 60*60; minute += 5 {
					refresh(t, first, s)
					refresh(t, second, s)
					now, n := roots(t, s)
					if n > 2 {
						t.Fatalf("%d authorities are trusted", n)
					}
					for _, a := range []*identity.Authority{first, second} {
						c := leaf(t, a.ServerTLS())
						alive = slices.DeleteFunc(alive, c.Equal)
						alive = append(alive, c)
					}
					alive = slices.DeleteFunc(alive, func(c *x509.Certificate) bool { return time.Now().After(c.NotAfter) })
					for _, c := range alive {
						for _, trusted := range []*x509.CertPool{now, stale} {
							if _, err := c.Verify(x509.VerifyOptions{Roots: trusted}); err != nil {
								t.Fatalf("after %d minutes: %v", minute, err)
							}
						}
					}
					stale = now
					time.Sleep(5 * time.Minute)
				}
				if _, n := roots(t, s); n != 1 || string(first.Certificate()) == old || string(first.Certificate()) != string(second.Certificate()) {
					t.Errorf("%d authorities are trusted; another one: %t", n, string(first.Certificate()) != old)
				}
				if s.kept.Rotate || s.kept.NextKey != nil {
					t.Error("the rotation has no end")
				}
			})
		})
	}
}

// nodeConnection is a node's connection to where nodes connect; its certificate is good.
func nodeConnection(t *testing.T, a *identity.Authority, address string, cert tls.Certificate) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool(t, a), ServerName: identity.ServiceName, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A revoked node has no way in: its connection ends, it gets no other, and no other certificate.
func TestARevokedNodeIsOut(t *testing.T) {
	store := &memory{}
	a, err := identity.Open(t.Context(), store, namespace)
	if err != nil {
		t.Fatal(err)
	}
	issuing := serve(t, a, cluster{pod: daemon})
	key := newKey(t)
	answer, err := issuing.issue(t.Context(), request(t, key), "Bearer "+token)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{certificate(t, answer.GetCertificate()).Raw}, PrivateKey: key}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nodes := grpc.NewServer(grpc.Creds(a.NodeCredentials()))
	var serving sync.WaitGroup
	serving.Go(func() { _ = nodes.Serve(l) })
	t.Cleanup(func() { nodes.Stop(); serving.Wait() })

	before := nodeConnection(t, a, l.Addr().String(), cert)
	if _, err := before.Read(make([]byte, 1)); err != nil { // the server's settings
		t.Fatalf("the node is not let in: %v", err)
	}
	refresh(t, a, store, "another", "node-1")
	drained := func(c *tls.Conn) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := c.Read(make([]byte, 1024)); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection stays open")
				}
				return
			}
		}
	}
	drained(before)
	after := nodeConnection(t, a, l.Addr().String(), cert)
	if n, err := after.Read(make([]byte, 1)); err == nil {
		t.Errorf("the node is let in, with %d bytes", n)
	}
	if _, err := issuing.issue(t.Context(), request(t, key), "Bearer "+token); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the node gets another certificate: %v", err)
	}
	refresh(t, a, store)
	again := nodeConnection(t, a, l.Addr().String(), cert)
	if _, err := again.Read(make([]byte, 1)); err != nil {
		t.Errorf("the node is not let in again: %v", err)
	}
}

// Without word of the list, what was revoked stays so.
func TestRevocationsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		a, err := identity.Open(t.Context(), store, namespace)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		list := &shared{}
		var following sync.WaitGroup
		following.Go(func() { a.Follow(ctx, store, list, slog.New(slog.DiscardHandler)) })
		for _, nodes := range [][]string{nil, {"node-1"}, {"node-1", "node-2"}, nil} {
			list.set(nodes)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			for _, node := range []string{"node-1", "node-2"} {
				if got := a.Revoked(node); got != slices.Contains(nodes, node) {
					t.Errorf("with %q: %s is revoked: %t", nodes, node, got)
				}
			}
		}
		cancel()
		following.Wait()
	})
}

type shared struct {
	mu    sync.Mutex
	nodes []string
}

func (s *shared) set(nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = nodes
}

func (s *shared) Revoked(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes, nil
}
