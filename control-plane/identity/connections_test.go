package identity_test

import (
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// Who holds connections open, and says nothing, keeps itself out and nobody else; what it
// closes does not count.
func TestOneAddressDoesNotKeepOthersOut(t *testing.T) {
	const share = 16 // of one address
	a := open(t)
	s := serve(t, a, cluster{pod: daemon})
	conf := &tls.Config{RootCAs: pool(t, a), ServerName: identity.ServiceName, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	connect := func(from string) (*tls.Conn, error) {
		d := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := tls.DialWithDialer(d, "tcp", strings.TrimPrefix(s.conn.Target(), "passthrough:///"), conf)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	var held []*tls.Conn
	for range share {
		c, err := connect("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	if _, err := connect("127.0.0.1"); err == nil {
		t.Error("an address has more connections than its share")
	}
	if _, err := connect("127.0.0.2"); err != nil {
		t.Errorf("another address is kept out: %v", err)
	}
	for _, c := range held {
		c.Close()
	}
	deadline := time.Now().Add(5 * time.Second) // half of what the server gives a connection that says nothing
	for range share {
		_, err := connect("127.0.0.1")
		for ; err != nil; _, err = connect("127.0.0.1") {
			if time.Now().After(deadline) {
				t.Fatalf("closed connections count: %v", err)
			}
		}
	}
	if _, err := connect("127.0.0.1"); err == nil {
		t.Error("there are more than before")
	}
}
