// Package identity is the control plane's own certificate authority on Kubernetes. It
// serves the control plane's certificate, and gives each node's daemon one that says
// which node it runs on, for a token of its service account: nobody has to hand out or
// renew certificates.
//
// Wiring, in the control plane's run:
//
//	store := identity.NewSecretStore(client, namespace)        // client-go's
//	authority, err := identity.Open(ctx, store, namespace)
//	go authority.Follow(ctx, store, store, log)                       // rotation, revoked nodes
//	nodes := serve.NewGRPC(grpc.Creds(authority.NodeCredentials()))   // :7443
//	first := serve.NewGRPC(authority.IdentityOptions()...)            // :7444
//	nodeapi.RegisterIdentityServer(first, authority.Server(identity.NewCluster(client, namespace), log))
//
// A daemon dials :7444 with the authority of ConfigMap headstart-ca and ServerName
// headstart-controlplane, and sends its projected token (audience "headstart") as
// metadata "authorization: Bearer <token>". Answers with code Unavailable or
// ResourceExhausted are to be tried again, all others name what an operator has to mend.
package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// ServiceName is the control plane's Service, and the name in its certificate that
	// daemons ask for.
	ServiceName = "headstart-controlplane"
	// Audience is what a daemon's token has to be made for: one for the API server is
	// of no use here, and a daemon's is of no use there.
	Audience = "headstart"
)

const (
	// Lifetime of nodes' and the control plane's certificates. A day bounds what a
	// stolen key is good for, and bridges a control plane that is away for a night.
	Lifetime = 24 * time.Hour
	// authorityLifetime is longer than a cluster lives without being made anew.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// clockSlack is how far a node's clock may be behind.
	clockSlack = 5 * time.Minute
)

// Authority signs the certificates of one installation. It is safe for concurrent use.
type Authority struct {
	names []string

	mu      sync.Mutex
	signer  signer
	serving *tls.Certificate // nil: none by this signer
	renew   time.Time
	revoked map[string]bool
	// open are the connections of nodes, by their names.
	open map[string]map[net.Conn]bool
}

// signer is what signs, and what is trusted meanwhile.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // of all that are trusted
	pool *x509.CertPool
}

// Open returns the authority that store keeps, and makes it if there is none yet. When
// several replicas open an empty store, all get the same one. namespace is the control
// plane's.
func Open(ctx context.Context, store Store, namespace string) (*Authority, error) {
	kept, err := store.Load(ctx)
	if errors.Is(err, ErrEmpty) {
		kept, err = create(ctx, store)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the certificate authority: %w", err)
	}
	s, err := parse(kept)
	if err != nil {
		return nil, fmt.Errorf("the kept certificate authority is not usable (remove %s and restart to get a new one): %w", store, err)
	}
	if err := store.Publish(ctx, s.pem); err != nil {
		return nil, fmt.Errorf("publishing the certificate authority: %w", err)
	}
	a := &Authority{signer: s, open: map[string]map[net.Conn]bool{}}
	a.names = []string{ServiceName, ServiceName + "." + namespace, ServiceName + "." + namespace + ".svc", ServiceName + "." + namespace + ".svc.cluster.local"}
	return a, nil
}

// create keeps a new authority, unless another replica was faster.
func create(ctx context.Context, store Store) (Material, error) {
	made, err := generate()
	if err != nil {
		return Material{}, err
	}
	err = store.Create(ctx, made)
	if errors.Is(err, ErrExists) {
		return store.Load(ctx)
	}
	return made, err
}

// Certificate returns the certificates that are trusted, the signer's first, as PEM.
func (a *Authority) Certificate() []byte { return slices.Clone(a.current().pem) }

func (a *Authority) current() signer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signer
}

func generate() (Material, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Material{}, fmt.Errorf("making the authority's key: %w", err)
	}
	tmpl := template("headstart authority", authorityLifetime)
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.MaxPathLenZero = true // it signs parties, no further authorities
	tmpl.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return Material{}, fmt.Errorf("signing the authority: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Material{}, fmt.Errorf("encoding the authority's key: %w", err)
	}
	return Material{Certificate: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", private)}, nil
}

// parse takes only what generate may have made: whoever puts another key there shall
// hear of it.
func parse(m Material) (signer, error) {
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	if err != nil {
		return signer{}, err // it quotes nothing of the key
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return signer{}, errors.New("its key is not ECDSA")
	}
	cert := pair.Leaf
	if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return signer{}, errors.New("its certificate may not sign others")
	}
	if now := time.Now(); now.After(cert.NotAfter) {
		return signer{}, fmt.Errorf("it has expired at %s", cert.NotAfter.Format(time.RFC3339))
	}
	s := signer{cert: cert, key: key, pool: x509.NewCertPool()}
	trusted, err := certificates(m.trusted())
	for _, c := range trusted {
		s.pem = append(s.pem, encode("CERTIFICATE", c.Raw)...)
		s.pool.AddCert(c)
	}
	return s, err
}

// certificates reads those of a PEM text.
func certificates(text []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return all, nil
}

// sign returns the DER certificate of a public key. It ends with the authority at the
// latest.
func (s signer) sign(tmpl *x509.Certificate, public any) ([]byte, error) {
	if tmpl.NotAfter.After(s.cert.NotAfter) {
		tmpl.NotAfter = s.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, s.cert, public, s.key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", tmpl.Subject.CommonName, err)
	}
	return der, nil
}

func template(name string, life time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSlack),
		NotAfter:  now.Add(life),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
