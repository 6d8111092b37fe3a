package site

import (
	"context"
	"errors"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
)

// copied is an object on the node, which may still arrive. It implements peers.Copy, for one goroutine at a time.
type copied struct {
	input *objects.Input
	about source.Object

	reader io.ReadCloser // nil: none yet
	at     int64         // where the reader is
}

// newCopied waits until it is known what the input is.
func newCopied(ctx context.Context, i *objects.Input) (peers.Copy, error) {
	about, err := i.Object(ctx)
	if err != nil {
		i.Release()
		return nil, err
	}
	about.Fresh = i.Fresh()
	return &copied{input: i, about: about}, nil
}

// Object implements peers.Copy.
func (c *copied) Object() source.Object { return c.about }

// Block implements peers.Copy.
func (c *copied) Block(ctx context.Context, i int64) (sum digest.Sum, n int, err error) {
	from := i * digest.Block
	whole := int64(0)
	for whole < digest.Block && err == nil {
		var more int64
		more, err = c.input.Await(ctx, from+whole)
		whole += more
	}
	if whole = min(whole, digest.Block); err != nil && !errors.Is(err, io.EOF) || whole == 0 {
		return sum, 0, err
	}
	sum, err = digest.OfRead(io.NewSectionReader(c, from, whole))
	return sum, int(whole), err
}

// ReadAt implements peers.Copy, for bytes that are there.
func (c *copied) ReadAt(p []byte, at int64) (int, error) {
	if c.reader == nil {
		r, err := c.input.NewReader(context.Background())
		if err != nil {
			return 0, err
		}
		c.reader = r
	}
	if at != c.at {
		if _, err := c.reader.(io.Seeker).Seek(at, io.SeekStart); err != nil { // buffer's readers are
			return 0, err
		}
		c.at = at
	}
	n, err := io.ReadFull(c.reader, p)
	c.at += int64(n)
	return n, err
}

// Close implements peers.Copy.
func (c *copied) Close() error {
	if c.reader != nil {
		_ = c.reader.Close() // it was only read from
	}
	c.input.Release()
	return nil
}
