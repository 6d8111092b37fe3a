package back

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

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
	Tag    string
	Size   int64
	Header http.Header
	Since  time.Time
}

// Held returns what was written here last and is pending; nil: Await tells whether another node has something. Whoever is
// returned it closes it.
func (w *Writer) Held(k Key) (*Held, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.own[k.place()]
	if e == nil {
		return nil, nil
	}
	f, err := os.Open(w.journal.content(e.ID))
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	return &Held{f, tagOf(e.MD5), e.Size, e.Header, e.Since}, nil
}

// Await returns when the store has whatever was acknowledged of an object before, on any node. It comes before a request
// to the store, not beside it. Its error is a *PendingError after a time.
func (w *Writer) Await(ctx context.Context, k Key) error {
	b, err := w.bucket(k)
	if err != nil {
		return err
	}
	return w.await(ctx, b, k.Key, time.Now().Add(w.config.Patience))
}

// AwaitPrefix is Await of all objects whose keys begin with k.Key.
func (w *Writer) AwaitPrefix(ctx context.Context, k Key) error {
	b, err := w.bucket(k)
	if err != nil {
		return err
	}
	end := time.Now().Add(w.config.Patience)
	keys, err := b.list(ctx, k.Key)
	for _, key := range keys {
		err = errors.Join(err, w.await(ctx, b, key, end))
		if err != nil {
			return err
		}
	}
	return err
}

// await waits until the marker is gone that it sees first: later ones are of writes that were not acknowledged before.
func (w *Writer) await(ctx context.Context, b bucket, key string, end time.Time) error {
	seen := Marker{}
	rest := time.NewTimer(0)
	defer rest.Stop()
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		m, err := b.marked(ctx, key)
		switch {
		case err != nil:
			return err
		case m == nil || seen.ID != "" && m.ID != seen.ID:
			return nil
		case !time.Now().Before(end):
			return &PendingError{b.name, *m}
		}
		seen = *m
		rest.Reset(min(wait, time.Until(end)))
		select {
		case <-rest.C:
		case <-w.ended(m.ID):
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
