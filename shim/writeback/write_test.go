package writeback

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Object is one that a test writes.
type Object struct {
	Key
	Function string
	Header   http.Header
	Content  string
}

// Tag is the entity tag that it is going to have.
func (o Object) Tag() string { return Tag(md5.Sum([]byte(o.Content))) }

// Write is Begin, the content, and Commit.
func (w *Writer) Write(ctx context.Context, o Object) (err error) {
	in, err := w.Begin(ctx, o.Function, o.Key, o.Header, int64(len(o.Content)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if _, err := io.Copy(in, strings.NewReader(o.Content)); err != nil {
		return err
	}
	return in.Commit(ctx, o.Header, md5.Sum([]byte(o.Content)))
}

// Pending returns the markers of a bucket below a prefix, as an operator finds them.
func Pending(ctx context.Context, s Store, name, prefix string) (all []Marker, err error) {
	b := bucket{s, name}
	keys, err := b.list(ctx, prefix)
	for key := range keys {
		m, err := b.marked(ctx, key)
		if err != nil {
			return nil, err
		}
		if m != nil {
			all = append(all, *m)
		}
	}
	return all, err
}

// GiveUp gives up a write whose node does not come back, as docs/operations tells the operator.
func GiveUp(ctx context.Context, s Store, name string, m Marker) error {
	b := bucket{s, name}
	if err := b.abort(ctx, m.Key, m.Upload); err != nil {
		return fmt.Errorf("giving up %s: %w", m.Key, err)
	}
	removed, err := b.unmark(ctx, m)
	if err == nil && !removed {
		err = errors.New("its marker has changed meanwhile; look again")
	}
	if err != nil {
		return fmt.Errorf("giving up %s: %w", m.Key, err)
	}
	return nil
}
