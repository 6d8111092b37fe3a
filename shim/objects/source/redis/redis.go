// Package redis reads inputs from Redis: strings, by GETRANGE in parallel. It speaks the
// protocol itself, because a client library hands out a reply when it has come whole.
package redis

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

// Part is the largest range that one connection reads without a pause, in bytes: many round
// trips' worth, as after each it waits for one; and small against most values that are worth
// several connections. It is asked for by smaller pieces, and none of it is held in memory.
const Part = 2 << 20

// contentType is that of all values, as Redis has none (RFC 2046, section 4.5.1).
const contentType = "application/octet-stream"

// The keys of a secret.
const (
	keyUsername = "username"
	keyPassword = "password"
)

var errPassword = errors.New(keyPassword + " is required")

// LoadCredentials reads the secret of that name:
//
//	username = ...      (optional: Redis' default user)
//	password = ...
func LoadCredentials(secrets *os.Root, name string) (secret.Secret, error) {
	s, err := secret.Load(secrets, name, keyUsername, keyPassword)
	if err != nil {
		return secret.Secret{}, err
	}
	if s.Get(keyPassword) == "" {
		return secret.Secret{}, fmt.Errorf("reading secret %q: %w", name, errPassword)
	}
	return s, nil
}

// Config describes one store as the operator allows it.
type Config struct {
	// Store is the store's name in messages.
	Store string
	// Address is the server's host:port.
	Address string
	// TLS is spoken with the system's authorities.
	TLS bool
	// Database is the number of the database.
	Database int
	// Buckets are the only ones that references may name: what stands before the first
	// colon of a key.
	Buckets []string
	// Credentials is called for each question, so that a changed secret counts from the next
	// one on. nil: the server needs none.
	Credentials func(context.Context) (secret.Secret, error)

	roots *x509.CertPool // other authorities than the system's, in tests
}

// Source reads objects of one store. It implements source.Source.
type Source struct {
	ranged.Source
	config Config
	lines  *lines

	mu      sync.Mutex
	watches map[string]*watch // by their versions
}

// New returns the source of a store. It does not call the store.
func New(cfg Config) (*Source, error) {
	if _, _, err := net.SplitHostPort(cfg.Address); err != nil || len(cfg.Buckets) == 0 {
		return nil, fmt.Errorf("store %q: an address of host:port and buckets are required", cfg.Store)
	}
	s := &Source{config: cfg, lines: newLines(cfg), watches: map[string]*watch{}}
	s.Source = ranged.Source{
		Fetcher: ranged.New(cfg.Store, Part),
		Schemes: []string{source.SchemeRedis}, Buckets: slices.Clone(cfg.Buckets),
		Object: func(ref source.Reference, held string) (ranged.Object, error) { return s.object(ref, held), nil },
	}
	return s, nil
}

// Close gives up the connections that are kept for later. A Fetch that is under way goes on
// by those that it has.
func (s *Source) Close() { s.lines.Close() }

// Fetch implements source.Source.
func (s *Source) Fetch(ctx context.Context, ref source.Reference, held string,
	begin func(source.Object) (io.WriterAt, error),
) error {
	allowed, err := s.Allowed(ref, held)
	if err != nil {
		return err
	}
	o := allowed.(*object) // as New says
	defer o.unwatch()
	if err := s.Fetcher.Fetch(ctx, ref, o, begin); err != nil || o.watch == nil {
		return err
	}
	// All parts are there. They are of one version if nobody has touched the key since
	// before the first.
	return s.Ask(ctx, ref, o.confirm)
}
