package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
)

// defaultType is what S3 takes an object for that has no type.
const defaultType = "binary/octet-stream"

// PendingError says that an object is not in the store yet, for longer than a request waits.
type PendingError struct {
	Bucket string
	Marker Marker
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("object %s in bucket %s was written at %s, and node %s has not uploaded it yet (%d bytes, write %s); if the node does not come back, give the write up",
		e.Marker.Key, e.Bucket, e.Marker.Since.Format(time.RFC3339), e.Marker.Node, e.Marker.Size, e.Marker.ID)
}

// Held is an object that was written on this node, and that the store does not have yet.
type Held struct {
	*os.File
	source.Object
}

// Held returns what was written here last and is pending; nil: Await tells whether there is something. That is so as well
// from when the store is asked to complete the upload until it has answered: a removal that was under way before may have
// come to it meanwhile, and been acknowledged. Whoever is returned it closes it.
func (w *Writer) Held(k Key) (*Held, error) { return w.held(k, func(*write) bool { return true }) }

// HeldWrite is Held of exactly the write that a marker names by its id, for a reader on another node. nil: it was not
// acknowledged, or is not pending any more. The reader waits for the marker then.
func (w *Writer) HeldWrite(k Key, id string) (*Held, error) {
	return w.held(k, func(e *write) bool { return e.ID == id })
}

func (w *Writer) held(k Key, is func(*write) bool) (*Held, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.own[k]
	if e == nil || e.completing || !is(e) {
		return nil, nil
	}
	f, err := os.Open(w.journal.content(e.ID))
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	return &Held{f, e.about()}, nil
}

// Has tells whether an object was written here, and the store does not have it yet.
func (w *Writer) Has(k Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.own[k]
	return e != nil && !e.completing
}

// about is what the store is going to say of the object.
func (r record) about() source.Object {
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	tag := tagOf(r.MD5)
	header.Set("Etag", tag)
	header.Set("Last-Modified", r.Since.UTC().Format(http.TimeFormat))
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", defaultType)
	}
	if len(checksums(r)) > 0 {
		header.Set(checksumType, fullObject)
	}
	header = s3.Header(header)
	if header != nil {
		header.Set(s3.Checked, "ENABLED")
	}
	return source.Object{Size: r.Size, Version: tag, ContentType: r.Header.Get("Content-Type"), Header: header}
}

// Fetch is source.Source's of a bucket in which nodes write behind. What was written here and is pending comes from here,
// and what another node has pending from there, if it can be had: see Holders. Else store brings it, as soon as the store has
// whatever was acknowledged of the object before, on any node.
func (w *Writer) Fetch(
	ctx context.Context, k Key, held string, begin source.Begin, store func(context.Context, source.Begin) error,
) error {
	h, err := w.Held(k)
	if err != nil {
		return err
	}
	if h == nil {
		return w.fetch(ctx, k, held, begin, store)
	}
	defer h.Close() // it was only read from
	if h.Version == held {
		return &source.Unchanged{}
	}
	to, err := begin(h.Object)
	if err == nil {
		_, err = io.Copy(io.NewOffsetWriter(to, 0), h)
	}
	return err
}

// Await returns when the store has whatever was acknowledged of an object before, on any node. It comes before a request
// to the store, not beside it. Its error is a *PendingError after a time.
func (w *Writer) Await(ctx context.Context, k Key) error {
	if !fitsMarker(k.Key) {
		return nil // nobody writes it behind
	}
	b, err := w.bucket(k)
	if err != nil {
		return err
	}
	return w.await(ctx, b, k.Key, "", w.patient())
}

// AwaitPrefix is Await of all objects whose keys begin with k.Key.
func (w *Writer) AwaitPrefix(ctx context.Context, k Key) error {
	return w.awaitAll(ctx, k, func(string) bool { return true })
}

// AwaitAll is Await of several objects of a bucket.
func (w *Writer) AwaitAll(ctx context.Context, store, bucket string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	common := keys[0]
	for _, k := range keys {
		for !strings.HasPrefix(k, common) {
			common = common[:len(common)-1]
		}
	}
	return w.awaitAll(ctx, Key{store, bucket, strings.ToValidUTF8(common, "")}, func(key string) bool { return slices.Contains(keys, key) })
}

func (w *Writer) awaitAll(ctx context.Context, k Key, which func(key string) bool) error {
	b, err := w.bucket(k)
	if err != nil {
		return err
	}
	var seen map[string]string // markers that were there from the beginning
	return w.poll(ctx, w.patient(), nil, func(ctx context.Context, last bool) (settled bool, err error) {
		now, err := b.list(ctx, k.Key)
		if err != nil {
			return errors.Is(err, errNoBucket), err
		}
		if seen == nil {
			seen = now
		}
		for key, tag := range seen {
			if now[key] != tag || !which(key) {
				delete(seen, key)
			}
		}
		if last {
			for key := range seen {
				return false, w.overdue(ctx, b, key)
			}
		}
		return len(seen) == 0, nil
	})
}

// await waits until the marker is gone that it sees first, or that was seen before by its id: later ones are of writes that
// were not acknowledged before.
func (w *Writer) await(ctx context.Context, b bucket, key, seen string, end time.Time) error {
	return w.poll(ctx, end, func() <-chan struct{} { return w.ended(seen) }, func(ctx context.Context, last bool) (settled bool, err error) {
		m, err := b.marked(ctx, key)
		switch {
		case err != nil:
			return errors.Is(err, errNoBucket), err
		case m == nil || seen != "" && m.ID != seen:
			return true, nil
		case last:
			return false, &PendingError{b.name, *m}
		}
		seen = m.ID
		return false, nil
	})
}

// overdue says what a marker is of that is waited for no longer.
func (w *Writer) overdue(ctx context.Context, b bucket, key string) error {
	m, err := b.marked(ctx, key)
	if err == nil && m != nil {
		err = &PendingError{b.name, *m}
	}
	return err
}

// patient is until when a request waits that comes now.
func (w *Writer) patient() (end time.Time) { return time.Now().Add(w.config.Patience) }

// looking bounds looks at markers until the end, or one if that has passed: a store may hang.
func looking(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(0, time.Until(end))+lastLook)
}

// poll looks until all is settled, or for the last time when a request has waited until the end. sooner may return what is
// closed when it is worth another look.
func (w *Writer) poll(ctx context.Context, end time.Time, sooner func() <-chan struct{},
	look func(ctx context.Context, last bool) (settled bool, err error),
) error {
	ctx, cancel := looking(ctx, end)
	defer cancel()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		settled, err := look(ctx, !time.Now().Before(end))
		if settled {
			return nil
		}
		if err != nil {
			return err
		}
		var ended <-chan struct{}
		if sooner != nil {
			ended = sooner()
		}
		rest.Reset(min(wait, time.Until(end)))
		select {
		case <-rest.C:
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.ctx.Done():
			return errors.New("the node ends")
		}
	}
}

// ended is closed at the end of a write of this node; nil: it is none of these.
func (w *Writer) ended(id string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.writes[id]; e != nil {
		return e.done
	}
	return nil
}
