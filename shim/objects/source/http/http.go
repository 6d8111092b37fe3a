// Package http reads inputs by HTTP and HTTPS: by ranges in parallel from servers that have
// them, else as one stream.
package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

// Part is the largest range asked for at once, in bytes: as with S3, which is HTTP too.
const Part = 2 << 20

// The keys of a secret.
const (
	keyToken    = "token"
	keyUsername = "username"
	keyPassword = "password"
)

var errSecret = errors.New("either " + keyToken + ", or " + keyUsername + " and " + keyPassword + " are required")

// LoadCredentials reads the secret of that name. It is a bearer token (RFC 6750)
//
//	token = ...
//
// or what Basic authentication needs (RFC 7617):
//
//	username = ...
//	password = ...
func LoadCredentials(secrets *os.Root, name string) (secret.Secret, error) {
	s, err := secret.Load(secrets, name, keyToken, keyUsername, keyPassword)
	if err != nil {
		return secret.Secret{}, err
	}
	if !usable(s) {
		return secret.Secret{}, fmt.Errorf("reading secret %q: %w", name, errSecret)
	}
	return s, nil
}

func usable(s secret.Secret) bool {
	basic := s.Get(keyUsername) != "" && s.Get(keyPassword) != ""
	return basic && s.Get(keyToken) == "" || s.Get(keyToken) != "" && s.Get(keyUsername) == "" && s.Get(keyPassword) == ""
}

// Config describes one store as the operator allows it.
type Config struct {
	// Store is the store's name in messages.
	Store string
	// Buckets are the only ones that references may name: host or host:port, as references
	// write it.
	Buckets []string
	// Public: hosts that are names must not resolve to private addresses.
	Public bool
	// Credentials is called for each request to the store, so that a changed secret counts
	// from the next one on. nil: the hosts need none. With credentials only https is
	// allowed.
	Credentials func(context.Context) (secret.Secret, error)
}

// Source reads objects of one store. It implements source.Source.
type Source struct {
	ranged.Source
	config    Config
	transport *http.Transport
}

// New returns the source of a store. It does not call the store.
func New(cfg Config) (*Source, error) {
	if len(cfg.Buckets) == 0 {
		return nil, fmt.Errorf("store %q: buckets are required", cfg.Store)
	}
	transport := ranged.Transport(address.Rule{Store: cfg.Store, Public: cfg.Public})
	s := &Source{config: cfg, transport: transport} // https trusts the system's authorities
	s.Source = ranged.Source{
		Fetcher: ranged.New(cfg.Store, Part),
		Schemes: []string{source.SchemeHTTP, source.SchemeHTTPS}, Buckets: slices.Clone(cfg.Buckets),
		Object: s.object,
	}
	return s, nil
}

// Close gives up the connections that are kept for later. A Fetch that is under way goes on
// by those that it has.
func (s *Source) Close() { s.transport.CloseIdleConnections() }

// object returns an object of an allowed host.
func (s *Source) object(ref source.Reference, held string) (ranged.Object, error) {
	if ref.Scheme == source.SchemeHTTP && s.config.Credentials != nil {
		// Whoever writes a function's annotation must not send the operator's secret in
		// the clear.
		return nil, source.OtherScheme(s.config.Store, ref, "https://, as it has credentials")
	}
	return &object{Source: s, ref: ref, held: held}, nil
}
