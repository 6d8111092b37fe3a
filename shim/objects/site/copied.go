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

// copied is an object on the node, which may still arrive. It implements peers.Copy.
type copied struct {
	about source.Object
	// read and hashed are for ReadAt and Block.
	read, hashed cursor
}

// cursor reads an object that is there, for one goroutine at a time.
type cursor struct {
	input  *objects.Input
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
	return &copied{about, cursor{input: i}, cursor{input: i}}, nil
}

// Object implements peers.Copy.
func (c *copied) Object() source.Object { return c.about }

// Block implements peers.Copy. What the digest was when the object came is what it is to be, if it is known.
func (c *copied) Block(ctx context.Context, i int64) (sum digest.Sum, n int, err error) {
	from := i * digest.Block
	whole := int64(0)
	for whole < digest.Block && err == nil {
		var more int64
		more, err = c.hashed.input.Await(ctx, from+whole)
		whole += more
	}
	if whole = min(whole, digest.Block); err != nil && !errors.Is(err, io.EOF) || whole == 0 {
		return sum, 0, err
	}
	if sum, known := c.hashed.input.Sum(i); known {
		return sum, int(whole), nil
	}
	sum, err = digest.OfRead(io.NewSectionReader(&c.hashed, from, whole))
	return sum, int(whole), err
}

// ReadAt implements peers.Copy, for bytes that are there.
func (c *copied) ReadAt(p []byte, at int64) (int, error) { return c.read.ReadAt(p, at) }

// ReadAt implements io.ReaderAt.
func (c *cursor) ReadAt(p []byte, at int64) (int, error) {
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
	for _, one := range []*cursor{&c.read, &c.hashed} {
		if one.reader != nil {
			_ = one.reader.Close() // it was only read from
		}
	}
	c.read.input.Release()
	return nil
}
