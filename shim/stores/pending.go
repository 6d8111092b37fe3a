package stores

import (
	"context"
	"errors"
	"io"
	status "net/http"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// Pending knows of objects that nodes have acknowledged, and that their store does not have yet.
type Pending interface {
	// Fetch is source.Source's of an object that a node may have pending. If none has, or does not bring it, store does, as
	// soon as the store has whatever any node has acknowledged of the object before.
	Fetch(ctx context.Context, k writeback.Key, held string, begin source.Begin,
		store func(context.Context, source.Begin) error) error
	// Has tells whether Fetch would find it on this node.
	Has(k writeback.Key) bool
	// AwaitPrefix returns when the store has whatever was acknowledged before of the objects whose keys begin with the key.
	AwaitPrefix(ctx context.Context, k writeback.Key) error
}

// bucket is one of a store's.
type bucket struct{ store, name string }

// Pend has reads of buckets with write: back find what p knows. Functions write behind in them when the list has said so
// for long enough that all nodes have read it. Call it before anything is read.
func (s *Stores) Pend(p Pending, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.after = p, after
}

// note notes which buckets a list says are written behind. The caller holds the lock.
func (s *Stores) note(store string, write map[string]string) {
	for name, how := range write {
		if b := (bucket{store, name}); how == listed.WriteBack && s.since[b].IsZero() {
			s.since[b] = time.Now()
		}
	}
}

// behind tells whether nodes may have acknowledged writes of a bucket that its store does not have yet, and for how long
// that is known. It stays so until the daemon ends, also if the list says otherwise: other nodes may still have some. The
// caller holds the lock.
func (s *Stores) behind(b bucket) (since time.Duration, is bool) {
	at, is := s.since[b]
	return time.Since(at), is && s.pending != nil
}

// pendingOf is what knows of a bucket's pending writes; nil: there are none.
func (s *Stores) pendingOf(b bucket) Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.behind(b); is {
		return s.pending
	}
	return nil
}

// Holds tells whether an object was written on this node, and the store does not have it yet: no neighbour has it sooner.
func (o *observed) Holds(ref source.Reference) bool {
	p := o.stores.pendingOf(bucket{o.name, ref.Bucket})
	return p != nil && p.Has(writeback.Key{Store: o.name, Bucket: ref.Bucket, Key: ref.Key})
}

// explain has an error of a wait for another node say what is the matter.
func (o *observed) explain(err error) error {
	var own *problem.Problem
	var unchanged *source.Unchanged
	var pending *writeback.PendingError
	switch {
	case err == nil, errors.As(err, &own), errors.As(err, &unchanged):
		return err
	case errors.As(err, &pending):
		return problem.New(status.StatusServiceUnavailable, problem.ReasonWritePending, filterapi.AnnotationStore, pending.Error())
	}
	return source.Because(source.Unavailable(o.name, "it does not say whether another node has written the object"), err)
}

// Fetch implements source.Source.
func (o *observed) Fetch(
	ctx context.Context, ref source.Reference, held string, begin func(source.Object) (io.WriterAt, error),
) error {
	store := func(ctx context.Context, begin source.Begin) error {
		return o.observe(o.opened.Fetch(ctx, ref, held, begin))
	}
	p := o.stores.pendingOf(bucket{o.name, ref.Bucket})
	if p == nil {
		return store(ctx, begin)
	}
	if writeback.IsOwn(ref.Key) {
		return source.NotFound(o.name, ref)
	}
	asked := false
	k := writeback.Key{Store: o.name, Bucket: ref.Bucket, Key: ref.Key}
	err := p.Fetch(ctx, k, held, begin, func(ctx context.Context, begin source.Begin) error {
		asked = true
		return store(ctx, begin)
	})
	if !asked {
		err = o.explain(err)
	}
	return err
}

// List implements source.Lister.
func (o *observed) List(ctx context.Context, prefix source.Reference, each func(string, source.Object) error) error {
	from, can := o.opened.(source.Lister)
	if !can {
		return source.NoLists(o.name)
	}
	if p := o.stores.pendingOf(bucket{o.name, prefix.Bucket}); p != nil {
		if err := p.AwaitPrefix(ctx, writeback.Key{Store: o.name, Bucket: prefix.Bucket, Key: prefix.Key}); err != nil {
			return o.explain(err)
		}
		all := each
		each = func(name string, about source.Object) error {
			if writeback.IsOwn(prefix.Key + name) {
				return nil
			}
			return all(name, about)
		}
	}
	return o.observe(from.List(ctx, prefix, each))
}

// API is a store with the S3 API, whatever its functions may do, and its address.
func (s *Stores) API(name string) (api *s3.Source, server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.open[name]
	switch {
	case s.known("") != nil:
		return nil, "", writeback.ErrNoList
	case !ok:
		return nil, "", errors.New("the operator's list does not have the store any more")
	}
	api, is := st.source.opened.(*s3.Source)
	if st.err != nil || !is {
		return nil, "", errors.Join(errors.New("the store does not have the S3 API"), st.err)
	}
	return api, st.config.GetEndpoint(), nil
}
