package ktls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"
	_ "unsafe" // for linkname
)

// What crypto/tls prefers, which nothing configures.
//
//go:linkname suitesPreferred crypto/tls.defaultCipherSuitesTLS13
var suitesPreferred []uint16

//go:linkname suitesPreferredWithoutAES crypto/tls.defaultCipherSuitesTLS13NoAES
var suitesPreferredWithoutAES []uint16

// speak has crypto/tls speak one suite of TLS 1.3.
func speak(t *testing.T, suite uint16) {
	was, wasWithout := suitesPreferred, suitesPreferredWithoutAES
	suitesPreferred, suitesPreferredWithoutAES = []uint16{suite}, []uint16{suite}
	t.Cleanup(func() { suitesPreferred, suitesPreferredWithoutAES = was, wasWithout })
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve has a TLS server serve one connection, and returns how to dial it.
func serve(t *testing.T, config *tls.Config, do func(raw net.Conn, c *tls.Conn)) Dial {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{certificate(t)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		do(raw, tls.Server(raw, config))
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

// connect dials by what follow returns.
func connect(t *testing.T, dial Dial, config *tls.Config) *tls.Conn {
	t.Helper()
	dial, config = follow(dial, config)
	raw, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return tls.Client(raw, config)
}

func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }
