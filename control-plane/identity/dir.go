package identity

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// The files of a DirStore.
const (
	dirAuthority = "authority.pem" // certificate and key in one, so that none is without the other
	dirPublic    = "ca.crt"
)

// DirStore keeps the authority in a directory, for a control plane outside a cluster.
type DirStore struct{ dir string }

// NewDirStore returns the store in dir, which exists and only its owner may read.
func NewDirStore(dir string) DirStore { return DirStore{dir} }

func (s DirStore) String() string { return filepath.Join(s.dir, dirAuthority) }

// Load implements Store.
func (s DirStore) Load(context.Context) (Material, error) {
	all, err := os.ReadFile(s.String())
	if errors.Is(err, fs.ErrNotExist) {
		return Material{}, ErrEmpty
	}
	if err != nil {
		return Material{}, fmt.Errorf("reading the authority: %w", err)
	}
	var m Material
	for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			m.Certificate = pem.EncodeToMemory(block)
		} else {
			m.Key = pem.EncodeToMemory(block)
		}
	}
	return m, nil
}

// Create implements Store: a link never replaces what has the name already.
func (s DirStore) Create(_ context.Context, m Material) (err error) {
	f, err := os.CreateTemp(s.dir, ".authority-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("keeping the authority: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(bytes.Join([][]byte{m.Certificate, m.Key}, nil))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keeping the authority: %w", err)
	}
	err = os.Link(f.Name(), s.String())
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("keeping the authority: %w", err)
	}
	return nil
}

// Publish implements Store.
func (s DirStore) Publish(_ context.Context, certificate []byte) error {
	const readable = 0o644
	if err := renameio.WriteFile(filepath.Join(s.dir, dirPublic), certificate, readable); err != nil {
		return fmt.Errorf("writing the authority's certificate: %w", err)
	}
	return nil
}
