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
	about peers.Object

	reader io.ReadCloser // nil: none yet
	at     int64         // where the reader is
}

func newCopied(i *objects.Input, about source.Object) *copied {
	c := &copied{input: i, about: peers.Object(about)}
	c.about.Fresh = i.Fresh()
	return c
}

// Object implements peers.Copy.
func (c *copied) Object() peers.Object { return c.about }

// Block implements peers.Copy.
func (c *copied) Block(ctx context.Context, i int64) (sum peers.Digest, n int, err error) {
	from := i * peers.BlockSize
	whole := int64(0)
	for whole < peers.BlockSize && err == nil {
		var more int64
		more, err = c.input.Await(ctx, from+whole)
		whole += more
	}
	if whole = min(whole, peers.BlockSize); err != nil && !errors.Is(err, io.EOF) || whole == 0 {
		return sum, 0, err
	}
	of, err := digest.OfRead(io.NewSectionReader(c, from, whole))
	return peers.Digest(of), int(whole), err
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
