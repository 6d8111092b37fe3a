package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/body"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// errSpilled ends the way into a buffer that is full. Nobody sees it.
var errSpilled = errors.New("the buffer is full")

// Receive puts a request's own body into the buffer as it comes, and returns it as the
// request's input, of which the caller is the one owner. The reference and the store of r do
// not count. The error is why not a byte was read: InputTooLarge, or what keeps the body out
// of the buffer. The body belongs to the cache until the input has ended, which it does soon
// after Release.
//
// A body of unknown length may find the buffer full on its way: then the input is complete
// with what is there, and Rest has what comes next.
func (c *Cache) Receive(ctx context.Context, r Request, from body.Body) (*Input, error) {
	c.mu.Lock()
	if c.inputs[r.key()] != nil {
		c.mu.Unlock()
		return nil, problem.New(
			http.StatusConflict, problem.ReasonDuplicateRequest, "",
			"the node has an input of a request with this identifier already",
		)
	}
	if err := c.room(r.Function); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	// Whoever waits for the request bounds it, and releases it.
	i := c.start(ctx, r, c.receive(from))
	c.mu.Unlock()
	return i.found()
}

// receive returns what runs the way of a body into the buffer.
func (c *Cache) receive(from body.Body) func(context.Context, *Input) error {
	return func(ctx context.Context, i *Input) error {
		o := c.own(i)
		err := from.Fetch(ctx, source.Reference{}, "", func(about source.Object) (io.WriterAt, error) {
			to, err := o.begin(about)
			if err == nil {
				close(i.ready)
			}
			return &spilling{to, i}, err
		})
		if err == nil || err == errSpilled {
			err = o.entry.Complete()
		}
		c.ended(o, err)
		o.end(err)
		if i.object == nil && i.refused != nil {
			return i.refused
		}
		return err
	}
}

// own is an object for one input alone.
func (c *Cache) own(i *Input) *object {
	o := c.newObject(i)
	o.cancel = i.cancel
	c.mu.Lock()
	defer c.mu.Unlock()
	o.waiting, i.waits = []*Input{i}, o
	return o
}

// spilling writes a body to the buffer until that is full.
type spilling struct {
	to    io.WriterAt
	input *Input
}

func (s *spilling) WriteAt(p []byte, at int64) (int, error) {
	n, err := s.to.WriteAt(p, at)
	// Room for a body of a known length is there from the start, or it was not begun.
	if buffer.IsFull(err) && s.input.object.about.Size == buffer.Unknown {
		s.input.rest = bytes.Clone(p)
		return 0, errSpilled
	}
	return n, err
}

// Rest waits for the end of the input, and returns what comes after the bytes in the buffer,
// if that was full before the body ended. More of the body may follow where it came from.
func (i *Input) Rest() (rest []byte, spilled bool) {
	<-i.done
	return i.rest, i.rest != nil
}
