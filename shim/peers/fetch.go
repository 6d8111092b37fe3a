package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
)

const (
	// blocksMost is how many blocks are in memory until they are checked, 32 MiB of them, which namespaces share.
	blocksMost = 16
	// referredTries is how often the nodes of a referral are asked, with retryPause in between: one that has just
	// been named may not have the object's name yet, or one taker too many.
	referredTries = 40
	retryPause    = 25 * time.Millisecond
	// avoidSilent and avoidLiar are for how long a node is asked nothing that did not answer, or sent a wrong block.
	avoidSilent = 10 * time.Second
	avoidLiar   = 10 * time.Minute
)

var (
	errNobody   = errors.New("no peer has the object")
	errLied     = errors.New("a block is not what its digest says")
	errChanged  = errors.New("the peer has another version of the object")
	errReferral = errors.New("none of those that the peer refers to has the object")
)

// ErrChanged says that the store has another version than the one whose bytes have come so far.
var ErrChanged = errors.New("the object has changed while it was read")

// Fetch has an object as it is now written at its offsets to what begin returns, as source.Source's Fetch does. It
// comes from the owner, or from those that the owner refers to. If they do not have it in time, the rest comes from
// store, which is to have the version of before, if any, asked for. held is a version that the caller has: if the
// object has not changed, an *Unchanged is returned, and begin is not called.
func (p *Peers) Fetch(ctx context.Context, namespace string, k Key, heldVersion string,
	begin func(Object) (io.WriterAt, error),
	store func(ctx context.Context, begin func(Object) (io.WriterAt, error)) error,
) error {
	in := &intake{begin: begin}
	q := question{Namespace: namespace, Store: k.Store, Reference: k.Reference, Held: heldVersion}
	err := p.fromPeers(fair.For(ctx, namespace), k, q, in)
	_, same := errors.AsType[*Unchanged](err)
	switch {
	case err == nil, same:
		p.metrics.fetches.WithLabelValues("peer").Inc()
		return err
	case in.fatal != nil:
		return in.fatal
	}
	from := "store"
	if in.at > 0 {
		from = "both"
	}
	p.metrics.fetches.WithLabelValues(from).Inc()
	return store(ctx, in.rest)
}

// fromPeers asks the choices for the object that are not this node, as long as it is not the owner itself.
func (p *Peers) fromPeers(ctx context.Context, k Key, q question, in *intake) error {
	choices := p.choices(k)
	if i := slices.Index(choices, p.config.Node); i >= 0 {
		choices = choices[:i]
	}
	if p.pass(q.Namespace) == "" {
		return errNobody
	}
	for _, node := range p.askable(choices) {
		if in.begun {
			q.Version, q.From = in.object.Version, in.at/BlockSize
		}
		s, err := p.ask(ctx, node, q)
		if err == nil && s.same != nil {
			s.close()
			return s.same
		}
		if err == nil {
			err = p.take(ctx, s, nil, q, in)
		}
		if err == nil || in.fatal != nil || ctx.Err() != nil {
			return err
		}
	}
	return errNobody
}

// take has the blocks written that a peer sends, if they are those of the digests. Without digests of somebody else
// they are to be those of the peer's own, and it may refer to others.
func (p *Peers) take(ctx context.Context, s *stream, sums *digests, q question, in *intake) (err error) {
	defer func() {
		err = s.explain(err)
		s.close()
		if err != nil && in.fatal == nil && (sums == nil || sums.err == nil) {
			p.failed(ctx, s.node, err)
		}
	}()
	if err := in.open(s.object); err != nil {
		return err
	}
	for in.at < in.object.Size {
		var want *Digest
		if sums != nil {
			if want, err = sums.next(in.at / BlockSize); err != nil {
				return err
			}
		}
		kind, n, err := s.next()
		switch {
		case err != nil:
			return err
		case kind == frameReferral && sums == nil:
			return p.referred(ctx, s, n, q, in)
		case kind != frameBlock:
			return fmt.Errorf("a peer sends a frame %q where a block should be", kind)
		}
		if err := p.block(ctx, s, n, want, in); err != nil {
			return err
		}
	}
	return nil
}

// referred has the blocks written that others send. The digests are those of the owner, which has referred to them
// in a frame of n bytes.
func (p *Peers) referred(ctx context.Context, owner *stream, n int, q question, in *intake) error {
	var names []string
	body, err := readBody(owner.frames, n)
	if err == nil {
		err = json.Unmarshal(body, &names)
	}
	if err != nil {
		return fmt.Errorf("reading a referral: %w", err)
	}
	q.Version, q.Only = in.object.Version, true
	sums := &digests{of: owner, block: -1}
	for try := range referredTries {
		if names = p.askable(names); len(names) == 0 {
			break
		}
		q.From = in.at / BlockSize
		s, err := p.ask(ctx, names[try%len(names)], q)
		if err == nil {
			err = p.take(ctx, s, sums, q, in)
			if err == nil || in.fatal != nil || sums.err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
	return errReferral
}

// block has a block written, if it is the one that its digest says.
func (p *Peers) block(ctx context.Context, s *stream, n int, want *Digest, in *intake) error {
	leave, err := p.blocks.Wait(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var sum Digest
	size := n - len(sum)
	if int64(size) != min(BlockSize, in.object.Size-in.at) {
		return fmt.Errorf("a peer sends a block of %d bytes at %d of %d", size, in.at, in.object.Size)
	}
	room := rooms.Get().(*[BlockSize]byte) // the pool has no others
	defer rooms.Put(room)
	body := room[:size]
	if _, err := io.ReadFull(s.frames, sum[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.frames, body); err != nil {
		return err
	}
	if p.config.Sum(body) != sum || want != nil && sum != *want {
		return errLied
	}
	if _, err := in.w.WriteAt(body, in.at); err != nil {
		in.fatal = err
		return err
	}
	in.at += int64(size)
	p.metrics.received.Add(float64(size))
	return nil
}

// rooms are for blocks until they are checked.
var rooms = sync.Pool{New: func() any { return new([BlockSize]byte) }}

// digests are those that the owner sends, one after the other.
type digests struct {
	of    *stream
	block int64 // of last
	last  Digest
	err   error
}

// next returns the digest of a block: that of before once more, or the one after it.
func (d *digests) next(block int64) (*Digest, error) {
	if d.block == block || d.err != nil {
		return &d.last, d.err
	}
	kind, n, err := d.of.next()
	if err == nil && kind != frameDigest {
		err = fmt.Errorf("a peer sends a frame %q where a digest should be", kind)
	}
	if err == nil {
		_, err = io.ReadFull(d.of.frames, d.last[:n])
	}
	d.block, d.err = block, err
	return &d.last, err
}

// failed notes that a peer was asked in vain, unless nobody wants the object any more.
func (p *Peers) failed(ctx context.Context, node string, err error) {
	if ctx.Err() != nil {
		return
	}
	said, refuses := errors.AsType[refusal](err)
	result := resultFailed
	switch {
	case refuses:
		if result = resultRefused; ownReasons[said] {
			result = string(said)
		}
	case errors.Is(err, errLied):
		result = resultLied
		p.avoid(node, avoidLiar)
	case errors.Is(err, errChanged):
		result = resultChanged
	case errors.Is(err, errReferral):
		result = resultReferral
	default:
		if errors.Is(err, errSilent) {
			result = resultSilent
		}
		p.avoid(node, avoidSilent)
	}
	p.metrics.asked.WithLabelValues(result).Inc()
	p.config.Log.Debug("a peer was asked in vain", "node", node, "error", err)
}
