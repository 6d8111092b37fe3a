package writeback

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// looksAtOnce is how many markers one list of uploads has looked at at a time.
const looksAtOnce = 8

// Upload is one in parts, of a program or of a node.
type Upload struct{ Key, ID string }

// is tells whether an upload has an id. Stores on file systems take ids for paths, several of which are the same.
func (u Upload) is(id string) bool { return id != "" && path.Clean("/"+u.ID) == path.Clean("/"+id) }

// OwnUpload tells whether an upload is a node's own: one that a write on this node has begun, or the one that the
// marker of its key names. It costs at most one request to the store. An upload of another node that has no marker yet
// is not known here. If a program changes it, nothing is lost: the write begins another upload.
func (w *Writer) OwnUpload(ctx context.Context, k Key, id string) (own bool, err error) {
	if !fitsMarker(k.Key) {
		return false, nil // nobody writes it behind
	}
	begun, err := w.begun(ctx, k.Store, k.Bucket, []string{k.Key})
	u := Upload{k.Key, id}
	if err != nil || slices.ContainsFunc(begun[k.Key], u.is) {
		return err == nil, err
	}
	b, err := w.bucket(k)
	if err != nil {
		return false, err
	}
	m, err := b.marked(ctx, k.Key)
	if m == nil {
		return false, unless(err, errNoBucket)
	}
	return u.is(m.Upload), err
}

// OwnUploads returns those of a list that are nodes' own, as OwnUpload does. It lists the markers below the common
// prefix of the keys, which takes one request for 1000 of them; each node has at most Config.Writes. Then it looks once
// at the marker of each key that has one: these are at most 1000 requests, as a store lists no more uploads at a time.
func (w *Writer) OwnUploads(ctx context.Context, store, name string, all []Upload) (own map[Upload]bool, err error) {
	var keys []string
	for _, u := range all {
		if fitsMarker(u.Key) {
			keys = append(keys, u.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	ids, err := w.begun(ctx, store, name, keys)
	if err != nil {
		return nil, err
	}
	b, err := w.bucket(Key{Store: store, Bucket: name})
	if err != nil {
		return nil, err
	}
	marked, err := b.list(ctx, common(keys))
	if err := unless(err, errNoBucket); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	looks, looking := errgroup.WithContext(ctx)
	looks.SetLimit(looksAtOnce)
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if marked[key] == "" {
			continue
		}
		looks.Go(func() error {
			m, err := b.marked(looking, key)
			if m != nil {
				mu.Lock()
				defer mu.Unlock()
				ids[key] = append(ids[key], m.Upload)
			}
			return unless(err, errNoBucket)
		})
	}
	if err := looks.Wait(); err != nil {
		return nil, err
	}
	own = map[Upload]bool{}
	for _, u := range all {
		own[u] = slices.ContainsFunc(ids[u.Key], u.is)
	}
	return own, nil
}

// unless is an error if it is not the other one.
func unless(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}

// begun returns the ids of the uploads that writes on this node have begun, by their keys. It waits for those that are
// about to begin one: the store may list it before it answers.
func (w *Writer) begun(ctx context.Context, store, name string, keys []string) (ids map[string][]string, err error) {
	ids = map[string][]string{}
	for _, key := range keys {
		ids[key] = nil
	}
	var of []*write
	w.mu.Lock()
	for _, e := range w.writes {
		if _, asked := ids[e.Key.Key]; asked && e.Store == store && e.Bucket == name {
			of = append(of, e)
		}
	}
	w.mu.Unlock()
	for _, e := range of {
		if e.created == nil {
			continue // an earlier daemon's, which the marker names
		}
		select {
		case <-e.created:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range of {
		ids[e.Key.Key] = append(ids[e.Key.Key], e.uploads...)
	}
	return ids, nil
}

// begins notes an upload that a write has begun; empty: it has not.
func (w *Writer) begins(e *write, upload string) {
	if upload == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.uploads = append(e.uploads, upload)
}

// common is what all keys begin with.
func common(keys []string) string {
	first, last := slices.Min(keys), slices.Max(keys)
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return strings.ToValidUTF8(first[:n], "")
}
