package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

const (
	// referredTries is how often the nodes of a referral are asked, triesEach times the first ones and then the last,
	// which is who has referred to them. One that has just been named may not have the object's name yet, or one
	// taker too many. The pauses in between grow by retryPause: in all they are 20 s.
	referredTries = 40
	triesEach     = 4
	retryPause    = 25 * time.Millisecond
)

// take asks a node, and writes the blocks that it sends, if they match sums. With nil, the blocks have to match the
// digests that the node itself sends, and the node may refer to others.
func (p *Peers) take(ctx context.Context, node string, sums *digests, q question, in *intake) (err error) {
	if q.From = in.at / digest.Block; in.begun {
		q.Held, q.Version = "", in.object.Version
	}
	s, err := p.ask(ctx, node, q)
	defer func() {
		err = s.explain(err)
		s.close()
		if err != nil && in.fatal == nil && (sums == nil || sums.err == nil) {
			p.failed(ctx, node, err)
		}
	}()
	if err != nil {
		return err
	}
	o, err := s.about(q.Held)
	if err == nil {
		err = in.open(o)
	}
	if err != nil {
		return err
	}
	for in.at < in.object.Size {
		var want *digest.Sum
		if sums != nil {
			if want, err = sums.next(in.at / digest.Block); err != nil {
				return err
			}
		}
		kind, body, err := s.next(in.room)
		switch {
		case err != nil:
			return err
		case kind == frameReferral && sums == nil:
			return p.referred(ctx, s, body, q, in)
		case kind != frameBlock:
			return fmt.Errorf("a peer sends a frame %q where a block should be", kind)
		}
		if err := p.block(body, want, in); err != nil {
			return err
		}
	}
	return nil
}

// referred writes the blocks of the nodes that the owner has named, if they match the owner's digests. If none of these
// nodes has the object any more, the owner serves it itself.
func (p *Peers) referred(ctx context.Context, owner *stream, said []byte, q question, in *intake) error {
	var names []string
	if err := json.Unmarshal(said, &names); err != nil {
		return fmt.Errorf("reading a referral: %w", err)
	}
	names = append(names[:min(len(names), referredMost)], owner.node)
	q.Only = true
	sums := &digests{of: owner, block: -1}
	for try := range referredTries {
		if names = p.askable(names); len(names) == 0 {
			break
		}
		node := names[min(try/triesEach, len(names)-1)]
		err := p.take(ctx, node, sums, q, in)
		if err == nil || in.fatal != nil || sums.err != nil {
			return err
		}
		if errors.Is(err, errDisputed) || errors.Is(err, errStalled) {
			names = slices.DeleteFunc(names, func(n string) bool { return n == node })
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(try+1) * retryPause):
		}
		if _, err := sums.next(in.at / digest.Block); err != nil { // there may be nothing to come
			return err
		}
	}
	return errReferral
}

// block has a block written that has come with its digest, if it is the one that these say.
func (p *Peers) block(body []byte, want *digest.Sum, in *intake) error {
	sum := digest.Sum(body)
	body = body[len(sum):]
	switch {
	case int64(len(body)) != min(digest.Block, in.object.Size-in.at):
		return fmt.Errorf("a peer sends a block of %d bytes at %d of %d", len(body), in.at, in.object.Size)
	case digest.OfBlock(body) != sum:
		return errLied
	case want != nil && sum != *want:
		return errDisputed // either of the two lies
	}
	if _, err := in.w.WriteAt(body, in.at); err != nil {
		in.fatal = err
		return err
	}
	in.at += int64(len(body))
	p.metrics.received.Add(float64(len(body)))
	return nil
}

// digests are those that the owner sends, one after the other.
type digests struct {
	of    *stream
	block int64 // of last
	last  digest.Sum
	err   error
}

// next returns the digest of a block: that of before once more, or the one after it.
func (d *digests) next(block int64) (*digest.Sum, error) {
	if d.block == block || d.err != nil {
		return &d.last, d.err
	}
	kind, body, err := d.of.next(d.last[:])
	if err == nil && kind != frameDigest {
		err = fmt.Errorf("a peer sends a frame %q where a digest should be", kind)
	}
	if err == nil {
		d.last = digest.Sum(body)
	}
	d.block, d.err = block, err
	return &d.last, err
}
