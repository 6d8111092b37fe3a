package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheLimiterForgetsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		address := func(i int) netip.Addr {
			return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		}
		for i := range callersMost {
			if !l.allow(address(i)) {
				t.Fatalf("caller %d is refused", i)
			}
		}
		if l.allow(address(callersMost)) || len(l.callers) != callersMost {
			t.Errorf("%d callers are remembered", len(l.callers))
		}
		time.Sleep(callsEvery)
		if !l.allow(address(callersMost)) || len(l.callers) != 1 {
			t.Errorf("%d callers are remembered", len(l.callers))
		}
		for range callsBurst - 1 {
			if !l.allow(address(callersMost)) {
				t.Fatal("a daemon's second try is refused")
			}
		}
		if l.allow(address(callersMost)) {
			t.Error("no bound")
		}
	})
}

// Whatever is sent, nothing but a key that is taken and its few addresses comes out.
func FuzzReadRequest(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	good, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"a"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, der []byte) {
		a, err := readRequest(der)
		if err != nil {
			return
		}
		if usable(a.key) != nil || len(a.ips) > requestAddressesMost || len(der) > requestMost {
			t.Errorf("%T with %v", a.key, a.ips)
		}
		for _, ip := range a.ips {
			if !ip.IsValid() {
				t.Errorf("address %v", ip)
			}
		}
	})
}
