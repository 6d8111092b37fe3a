package identity

import (
	"context"
	"errors"
	"fmt"
)

// Material is an authority's certificate and its key, each as PEM.
type Material struct{ Certificate, Key []byte }

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
	// Publish shows the certificate to the nodes' daemons.
	Publish(ctx context.Context, certificate []byte) error
}
