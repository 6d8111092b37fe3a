package stores

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// lookEvery is how often the node's own list is looked at, and the secrets for what is wrong with them:
	// small files, and soon enough for somebody who has just changed one.
	lookEvery = 2 * time.Second
	// problemsMost and wordsMost are how much the control plane is told.
	problemsMost = 20
	wordsMost    = 512
)

// observed is a source that knows whether its store accepted the node at last.
type observed struct {
	opened
	stores  *Stores
	name    string
	server  string                 // see Identity
	refusal atomic.Pointer[string] // nil: none
}

// Identity names the server: what the same one has sent to an earlier process is the store's.
func (o *observed) Identity() string { return o.server }

func (o *observed) observe(err error) error {
	_, unchanged := errors.AsType[*source.Unchanged](err)
	switch reason := problem.ReasonOf(err); {
	case err == nil, unchanged, reason == problem.ReasonInputNotFound:
		o.refusal.Store(nil)
	case reason == problem.ReasonStoreForbidden, reason == problem.ReasonStoreAddressRefused:
		o.refusal.Store(&problem.Of(err).Detail)
	}
	return err
}

// problem is why the store cannot be used, empty if nothing is known against it.
func (st *store) problem(ctx context.Context) string {
	if st.err != nil {
		return st.err.Error()
	}
	if st.credentials != nil {
		if _, err := st.credentials(ctx); err != nil {
			st.source.refusal.Store(nil) // it was of these credentials; what comes next is asked with others
			return err.Error()
		}
	}
	if said := st.source.refusal.Load(); said != nil {
		return *said
	}
	return ""
}

// problems are those of all stores, by name.
func (s *Stores) problems(ctx context.Context) *nodeapi.StoreProblems {
	s.mu.Lock()
	open := maps.Clone(s.open)
	s.mu.Unlock()
	m := &nodeapi.StoreProblems{}
	if err := s.look(); err != nil {
		m.Problems = append(m.Problems, problemOf("", err.Error()))
	}
	for name, st := range open {
		if said := st.problem(ctx); said != "" {
			m.Problems = append(m.Problems, problemOf(name, said))
		}
	}
	slices.SortFunc(m.Problems, func(a, b *nodeapi.StoreProblem) int {
		return cmp.Compare(a.GetStore(), b.GetStore())
	})
	m.Problems = m.Problems[:min(len(m.Problems), problemsMost)]
	return m
}

func problemOf(store, said string) *nodeapi.StoreProblem {
	return &nodeapi.StoreProblem{Store: store, Message: strings.ToValidUTF8(said[:min(len(said), wordsMost)], "")}
}

// Watch follows the node's own list, and tells of the stores' problems whenever they are others than before,
// until ctx ends.
func (s *Stores) Watch(ctx context.Context, tell func(*nodeapi.StoreProblems), log *slog.Logger) {
	told := &nodeapi.StoreProblems{}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if m := s.problems(ctx); !proto.Equal(m, told) {
			for _, p := range m.GetProblems() {
				log.Warn("a store cannot be used", "store", p.GetStore(), "problem", p.GetMessage())
			}
			told = m
			tell(m)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
