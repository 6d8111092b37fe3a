// Package http reads inputs by HTTP and HTTPS: by ranges in parallel from servers that have
// them, else as one stream.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/headstart-mesh/headstart/shim/source"
	"github.com/headstart-mesh/headstart/shim/source/ranged"
	"github.com/headstart-mesh/headstart/shim/source/secret"
)

const (
	// Part is the largest range asked for at once, in bytes: as with S3, which is HTTP too.
	Part = 2 << 20

	// maxHeader bounds an answer's header, in bytes: the client reads it into memory.
	maxHeader = 64 << 10
)

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
	// Credentials is called for each request to the store, so that a changed secret counts
	// from the next one on. nil: the hosts need none. With credentials only https is
	// allowed.
	Credentials func(context.Context) (secret.Secret, error)
}

// Source reads objects of one store. It implements source.Source.
type Source struct {
	config    Config
	transport *http.Transport
	fetcher   *ranged.Fetcher
}

// New returns the source of a store. It does not call the store.
func New(cfg Config) (*Source, error) {
	if len(cfg.Buckets) == 0 {
		return nil, fmt.Errorf("store %q: buckets are required", cfg.Store)
	}
	cfg.Buckets = slices.Clone(cfg.Buckets)
	return &Source{
		config:  cfg,
		fetcher: ranged.New(cfg.Store, Part),
		// No proxy from the environment, and HTTP/1.1: HTTP/2 would put all parts on one
		// connection with one congestion window. https trusts the system's authorities.
		transport: &http.Transport{
			DialContext:            ranged.Dialer().DialContext,
			TLSHandshakeTimeout:    ranged.Stall,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost:    ranged.Slots,
			IdleConnTimeout:        ranged.Idle,
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true,
		},
	}, nil
}

// Close gives up the connections that are kept for later. A Fetch that is under way goes on
// by those that it has.
func (s *Source) Close() { s.transport.CloseIdleConnections() }

// Fetch implements source.Source.
func (s *Source) Fetch(ctx context.Context, ref source.Reference, begin func(source.Object) (io.WriterAt, error)) error {
	if err := s.allow(ref); err != nil {
		return err
	}
	return s.fetcher.Fetch(ctx, ref, &object{Source: s, ref: ref}, begin)
}

// Stat implements source.Source.
func (s *Source) Stat(ctx context.Context, ref source.Reference) (found source.Object, err error) {
	if err := s.allow(ref); err != nil {
		return source.Object{}, err
	}
	err = s.fetcher.Ask(ctx, ref, func(ctx context.Context) error {
		found, err = (&object{Source: s, ref: ref}).stat(ctx)
		return err
	})
	return found, err
}

func (s *Source) allow(ref source.Reference) error {
	switch {
	case ref.Scheme != source.SchemeHTTP && ref.Scheme != source.SchemeHTTPS:
		return source.OtherScheme(s.config.Store, ref, "http:// or https://")
	case !slices.Contains(s.config.Buckets, ref.Bucket):
		return source.NotAllowed(s.config.Store, ref)
	case ref.Scheme == source.SchemeHTTP && s.config.Credentials != nil:
		// Whoever writes a function's annotation must not send the operator's secret in
		// the clear.
		return source.OtherScheme(s.config.Store, ref, "https://, as it has credentials")
	}
	return nil
}
