package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// identity is a workload's, as SPIFFE and Istio write it:
// spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
type identity struct{ trustDomain, namespace, account string }

// identityOf returns the identity that a certificate is for. SPIFFE wants exactly one
// URI in it (X.509-SVID, section 2).
func identityOf(cert *x509.Certificate) (identity, error) {
	if len(cert.URIs) != 1 {
		return identity{}, fmt.Errorf("the certificate has %d URIs, a workload's has one", len(cert.URIs))
	}
	return parseIdentity(cert.URIs[0].String())
}

func parseIdentity(uri string) (identity, error) {
	rest, ok := strings.CutPrefix(uri, "spiffe://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" || parts[0] == "" || parts[2] == "" || parts[4] == "" {
		return identity{}, fmt.Errorf("%.200q is not a workload's identity", uri)
	}
	return identity{trustDomain: parts[0], namespace: parts[2], account: parts[4]}, nil
}

// namespaceOf returns the namespace of the service that a server name of Istio's stands
// for, outbound_.<port>_.<subset>_.<name>.<namespace>.svc.<domain>. It is empty for those
// of services outside Kubernetes.
func namespaceOf(sni string) string {
	parts := strings.Split(sni, "_.")
	if len(parts) != 4 {
		return ""
	}
	labels := strings.Split(parts[3], ".")
	if len(labels) < 3 || labels[2] != "svc" {
		return ""
	}
	return labels[1]
}

// verify accepts a workload of the trust domain, and of the namespace unless that is
// empty. It stands in for the check of a host name, which workloads' certificates lack.
func verify(state tls.ConnectionState, roots *x509.CertPool, trustDomain, namespace string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the instance showed no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return fmt.Errorf("the instance's certificate: %w", err)
	}
	id, err := identityOf(leaf)
	if err != nil {
		return err
	}
	if id.trustDomain != trustDomain {
		return fmt.Errorf("the instance is in the trust domain %s, not in %s", id.trustDomain, trustDomain)
	}
	if namespace != "" && id.namespace != namespace {
		return fmt.Errorf("the instance is of the namespace %s, not of %s", id.namespace, namespace)
	}
	return nil
}
