package writeback

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Holders are the nodes that markers name.
type Holders interface {
	// Written is source.Source's Fetch of exactly the write that a marker names, from its node, for the namespace that
	// the context is for. begin is told the marker's tag and size, and the bytes come in order, each once. If the node
	// cannot be asked, does not have this write, or breaks off, instead brings the rest: it is called at most once, and
	// what has come already is not written again.
	Written(ctx context.Context, k Key, m Marker, held string, begin source.Begin,
		instead func(context.Context, source.Begin) error) error
}

// fetch is Fetch of what was not written here. A reader that has seen a marker gets the write that it names if the node of
// the marker has acknowledged this write, and has not begun to complete its upload: until then nothing newer is
// acknowledged. Else the reader waits: the marker alone may be one that comes late, of a write that was abandoned.
func (w *Writer) fetch(
	ctx context.Context, k Key, held string, begin source.Begin, store func(context.Context, source.Begin) error,
) error {
	if !fitsMarker(k.Key) {
		return store(ctx, begin) // nobody writes it behind
	}
	b, err := w.bucket(k)
	if err != nil {
		return err
	}
	end := w.patient()
	look, cancel := looking(ctx, end)
	defer cancel()
	m, err := b.marked(look, k.Key)
	switch {
	case errors.Is(err, errNoBucket), err == nil && m == nil:
		return store(ctx, begin)
	case err != nil:
		return err
	}
	later := func(ctx context.Context, begin source.Begin) error {
		if err := w.await(ctx, b, k.Key, m.ID, end); err != nil {
			return err
		}
		return store(ctx, begin)
	}
	if m.Node == w.config.Node || w.config.Holders == nil {
		return later(ctx, begin)
	}
	c, from := &checked{marker: *m, begin: begin, sum: md5.New()}, &w.fromNodes
	err = w.config.Holders.Written(ctx, k, *m, held, c.start, func(ctx context.Context, begin source.Begin) error {
		c.over, from = true, &w.fromStore
		return later(ctx, begin)
	})
	if _, same := errors.AsType[*source.Unchanged](err); err == nil || same {
		from.Add(1)
	}
	return err
}

// errDescribed ends the fetch of an object of which no more is asked for. Nobody sees it.
var errDescribed = errors.New("the object is described")

// Describe is Fetch of what another node says of an object that it has pending, without the content. nil: the store has
// whatever was acknowledged of it before.
func (w *Writer) Describe(ctx context.Context, k Key) (about *source.Object, err error) {
	err = w.fetch(ctx, k, "", func(o source.Object) (io.WriterAt, error) {
		about = &o
		return nil, errDescribed
	}, func(context.Context, source.Begin) error { return nil })
	if errors.Is(err, errDescribed) {
		err = nil
	}
	return about, err
}

// checked is where a write from another node goes. The last of its bytes are passed on when all are known to be what
// the marker says, so that a wrong object never becomes whole.
type checked struct {
	marker Marker
	begin  source.Begin
	to     io.WriterAt
	sum    hash.Hash
	at     int64
	over   bool // the rest is the store's
}

// start is source.Begin.
func (c *checked) start(o source.Object) (to io.WriterAt, err error) {
	c.to, err = c.begin(o)
	return c, err
}

// WriteAt implements io.WriterAt.
func (c *checked) WriteAt(p []byte, at int64) (int, error) {
	if c.over {
		return c.to.WriteAt(p, at)
	}
	_, _ = c.sum.Write(p) // never fails
	c.at += int64(len(p))
	if c.at == c.marker.Size && tagOf(c.sum.Sum(nil)) != c.marker.Tag {
		return 0, fmt.Errorf("node %s sends another content of %s than that of write %s",
			c.marker.Node, c.marker.Key, c.marker.ID)
	}
	return c.to.WriteAt(p, at)
}
