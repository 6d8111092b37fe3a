package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Material is an authority, as PEM.
type Material struct {
	// Certificate and Key sign. After the signer's certificate come those of the authorities before it, which are still
	// trusted.
	Certificate, Key []byte
	// NextCertificate and NextKey sign next, and the certificate is trusted already. Empty: there is no next one.
	NextCertificate, NextKey []byte
	// Since is when the signer replaced the one before (RFC 3339); empty: there was none.
	Since string
	// Rotate says that the operator asks for another authority.
	Rotate bool

	version string // the store's, by which Replace knows what it replaces
}

// trusted are the certificates of all that nodes are to trust.
func (m Material) trusted() []byte { return slices.Concat(m.Certificate, m.NextCertificate) }

// Errors of a Store.
var (
	// ErrEmpty says that the store keeps nothing yet.
	ErrEmpty = errors.New("no certificate authority is kept yet")
	// ErrExists says that somebody else was faster.
	ErrExists = errors.New("a certificate authority is kept already")
)

// Store keeps one authority, for all replicas of the control plane. Its String says
// where, for the operator.
type Store interface {
	fmt.Stringer
	// Load returns what is kept, or ErrEmpty.
	Load(ctx context.Context) (Material, error)
	// Create keeps m if nothing is kept, else it returns ErrExists. Of several callers
	// exactly one succeeds.
	Create(ctx context.Context, m Material) error
	// Replace keeps m in place of what it was made from. If that is no longer kept, it returns ErrExists.
	Replace(ctx context.Context, m Material) error
	// Publish shows the certificates to the nodes' daemons.
	Publish(ctx context.Context, certificate []byte) error
}
