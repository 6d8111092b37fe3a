package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
)

const (
	// requestMost bounds a certificate request, in bytes: one with an RSA key of 4096
	// bits has 1.6 KiB.
	requestMost = 8 << 10
	// requestAddressesMost: a pod has one address per family.
	requestAddressesMost = 4
	// Bits of an RSA key: fewer are weak (NIST SP 800-57), more only cost time.
	rsaLeast, rsaMost = 2048, 4096
)

// asked is what counts of a certificate request.
type asked struct {
	key any // *ecdsa.PublicKey, ed25519.PublicKey or *rsa.PublicKey
	ips []netip.Addr
}

// readRequest reads a certificate request (PKCS #10, DER) of anybody. Names in it do
// not count and are not looked at.
func readRequest(der []byte) (asked, error) {
	if len(der) > requestMost {
		return asked{}, fmt.Errorf("it has %d bytes, %d are enough", len(der), requestMost)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return asked{}, errors.New("it is no PKCS #10 request in DER")
	}
	// Before its signature: verifying one of a huge key would cost us, not the caller.
	if err := usable(r.PublicKey); err != nil {
		return asked{}, err
	}
	if err := r.CheckSignature(); err != nil {
		return asked{}, errors.New("it is not signed with its own key")
	}
	if len(r.IPAddresses) > requestAddressesMost {
		return asked{}, fmt.Errorf("it has %d addresses, %d are enough", len(r.IPAddresses), requestAddressesMost)
	}
	a := asked{key: r.PublicKey}
	for _, ip := range r.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			return asked{}, errors.New("it has an address that is none")
		}
		a.ips = append(a.ips, addr.Unmap())
	}
	return a, nil
}

func usable(public any) error {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= rsaLeast && bits <= rsaMost {
			return nil
		}
	}
	return fmt.Errorf("its key is of no kind that is taken: use ECDSA P-256, Ed25519, or RSA of %d to %d bits", rsaLeast, rsaMost)
}
