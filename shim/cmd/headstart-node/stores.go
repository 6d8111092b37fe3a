package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
	"github.com/headstart-mesh/headstart/shim/source/s3"
)

// stores are the sources that the operator allows, as the control plane lists them.
// Their credentials never pass the control plane: they lie in files on the node.
type stores struct {
	secrets *os.Root // nil: the node has no secrets

	mu   sync.Mutex
	open map[string]store
}

type store struct {
	config *nodeapi.Store
	source *s3.Source
	err    error // the store cannot be used as it is configured
}

func openStores(secretsDir string) (*stores, error) {
	s := &stores{open: map[string]store{}}
	var err error
	if s.secrets, err = os.OpenRoot(secretsDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--secrets-dir: %w", err)
	}
	return s, nil
}

// Close ends the connections to the stores.
func (s *stores) Close() {
	s.set(nil)
	if s.secrets != nil {
		_ = s.secrets.Close() // it was only read from
	}
}

// set replaces the list. Stores that stay as they are keep their connections.
func (s *stores) set(list []*nodeapi.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]store, len(list))
	for _, c := range list {
		if old, ok := s.open[c.GetName()]; ok && proto.Equal(old.config, c) {
			next[c.GetName()] = old
			delete(s.open, c.GetName())
			continue
		}
		src, err := s3.New(s3.Config{Store: c.GetName(), Endpoint: c.GetEndpoint(), Region: c.GetRegion(),
			PathStyle: c.GetPathStyle(), Buckets: c.GetBuckets(), Credentials: s.credentials(c)})
		next[c.GetName()] = store{config: c, source: src, err: err}
	}
	for _, gone := range s.open {
		if gone.source != nil {
			gone.source.Close()
		}
	}
	s.open = next
}

func (s *stores) credentials(c *nodeapi.Store) func(context.Context) (s3.Credentials, error) {
	return func(context.Context) (s3.Credentials, error) {
		if s.secrets == nil {
			return s3.Credentials{}, errors.New("the node has no secrets directory")
		}
		return s3.LoadCredentials(s.secrets, c.GetSecret())
	}
}

func (s *stores) source(name string) (source.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.open[name]; ok && st.err != nil {
		return nil, fmt.Errorf("store %q: %w", name, st.err)
	} else if ok {
		return st.source, nil
	}
	return nil, problem.New(http.StatusForbidden, "StoreNotAllowed", "headstart.dev/store", fmt.Sprintf("store %q is not on the operator's list", name))
}
