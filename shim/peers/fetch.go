package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// fetchesMost is how many objects come from peers at a time, which namespaces share. Each has at most one block
	// in memory until it is checked, and windowMost of the next ones: 96 MiB in all. All have room in a connection,
	// so those that go slowly hold up no others.
	fetchesMost = 32
	// referredTries is how often the nodes of a referral are asked, triesEach times the first ones and then the last,
	// which is who has referred to them. One that has just been named may not have the object's name yet, or one
	// taker too many. The pauses in between grow by retryPause: in all they are 20 s.
	referredTries = 40
	triesEach     = 4
	retryPause    = 25 * time.Millisecond
	// avoidSilent and avoidLiar are for how long a node is asked nothing that did not answer, or sent a block with
	// the digest of another one.
	avoidSilent = 10 * time.Second
	avoidLiar   = 10 * time.Minute
)

var (
	errNobody   = errors.New("no peer has the object")
	errLied     = errors.New("a block is not what its digest says")
	errDisputed = errors.New("a block is not what the digest of the peer that refers to it says")
	errChanged  = errors.New("the peer has another version of the object")
	errReferral = errors.New("none of those that the peer refers to has the object")
)

// ErrChanged says that the store has another version than the one whose bytes have come so far.
var ErrChanged = errors.New("the object has changed while it was read")

// Fetch has an object as it is now written at its offsets to what begin returns, as source.Source's Fetch does. It
// comes from the owner, or from those that the owner refers to. If they do not have it in time, store has the version
// of before, if any, asked for; of what has come already nothing is written twice. What the store says of the object to
// those that ask it in place of all is the answer, a *problem.Problem. held is a version that the caller has: if the object
// has not changed, an *Unchanged is returned, and begin is not called.
func (p *Peers) Fetch(ctx context.Context, namespace string, k Key, heldVersion string,
	begin func(Object) (io.WriterAt, error),
	store func(ctx context.Context, begin func(Object) (io.WriterAt, error)) error,
) error {
	in := &intake{begin: begin}
	q := question{Namespace: namespace, Store: k.Store, Reference: k.Reference, Held: heldVersion}
	err := p.fromPeers(fair.For(ctx, namespace), k, q, in)
	_, same := errors.AsType[*Unchanged](err)
	said, final := errors.AsType[verdict](err)
	switch {
	case final:
		p.metrics.fetches.WithLabelValues("peer").Inc()
		return said.Problem
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
	err = store(ctx, in.rest)
	if _, same := errors.AsType[*Unchanged](err); same && in.begun {
		return ErrChanged // back to what is held, after the beginning of another version
	}
	return err
}

// verdict is what the store has said of an object, so that nobody need ask it again.
type verdict struct{ *problem.Problem }

// isVerdict tells whether a peer's answer is one: there is no such object, or both choices find the store to fail in the
// same way. One alone may itself be what fails.
func isVerdict(err, before error) (v verdict, is bool) {
	said, is := errors.AsType[*problem.Problem](err)
	if !is {
		return v, false
	}
	earlier, twice := errors.AsType[*problem.Problem](before)
	ofStore := said.Status == http.StatusBadGateway || said.Status == http.StatusGatewayTimeout
	return verdict{said}, said.Title == string(problem.ReasonInputNotFound) ||
		ofStore && twice && earlier.Title == said.Title
}

// fromPeers asks the choices for the object that are not this node, as long as it is not the owner itself.
func (p *Peers) fromPeers(ctx context.Context, k Key, q question, in *intake) error {
	choices := p.choices(k)
	if i := slices.Index(choices, p.config.Node); i >= 0 {
		choices = choices[:i]
	}
	if p.pass(q.Namespace) == "" || len(choices) == 0 {
		return errNobody
	}
	leave, err := p.fetching.Wait(ctx) // before anybody is asked: what comes then is read
	if err != nil {
		return err
	}
	defer leave()
	room := rooms.Get().(*[frameBlockMost]byte) // the pool has no others
	defer rooms.Put(room)
	in.room = room[:]
	var before error
	for _, node := range p.askable(choices) {
		if in.begun {
			q.Held, q.Version, q.From = "", in.object.Version, in.at/BlockSize
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
		if v, is := isVerdict(err, before); is {
			return v
		}
		before = err
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

// referred has the blocks written that others send, whose names the owner has sent. The digests are those of the owner,
// and it serves the object itself if none of the others has it any more.
func (p *Peers) referred(ctx context.Context, owner *stream, said []byte, q question, in *intake) error {
	var names []string
	if err := json.Unmarshal(said, &names); err != nil {
		return fmt.Errorf("reading a referral: %w", err)
	}
	names = append(names[:min(len(names), referredMost)], owner.node)
	q.Held, q.Version, q.Only = "", in.object.Version, true
	sums := &digests{of: owner, block: -1}
	for try := range referredTries {
		if names = p.askable(names); len(names) == 0 {
			break
		}
		q.From = in.at / BlockSize
		node := names[min(try/triesEach, len(names)-1)]
		s, err := p.ask(ctx, node, q)
		if err == nil {
			err = p.take(ctx, s, sums, q, in)
			if err == nil || in.fatal != nil || sums.err != nil {
				return err
			}
		}
		if errors.Is(err, errDisputed) || errors.Is(err, errStalled) {
			names = slices.DeleteFunc(names, func(n string) bool { return n == node })
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(try+1) * retryPause):
		}
		if _, err := sums.next(in.at / BlockSize); err != nil { // there may be nothing to come
			return err
		}
	}
	return errReferral
}

// block has a block written that has come with its digest, if it is the one that these say.
func (p *Peers) block(body []byte, want *Digest, in *intake) error {
	sum := Digest(body)
	body = body[len(sum):]
	switch {
	case int64(len(body)) != min(BlockSize, in.object.Size-in.at):
		return fmt.Errorf("a peer sends a block of %d bytes at %d of %d", len(body), in.at, in.object.Size)
	case p.config.Sum(body) != sum:
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

// frameBlockMost is how many bytes the frame of a block has.
const frameBlockMost = len(Digest{}) + BlockSize

// rooms are for blocks until they are checked.
var rooms = sync.Pool{New: func() any { return new([frameBlockMost]byte) }}

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
	kind, body, err := d.of.next(d.last[:])
	if err == nil && kind != frameDigest {
		err = fmt.Errorf("a peer sends a frame %q where a digest should be", kind)
	}
	if err == nil {
		d.last = Digest(body)
	}
	d.block, d.err = block, err
	return &d.last, err
}

// failed notes that a peer was asked in vain, unless nobody wants the object any more.
func (p *Peers) failed(ctx context.Context, node string, err error) {
	if ctx.Err() != nil {
		return
	}
	said, refuses := errors.AsType[*problem.Problem](err)
	result := resultFailed
	switch {
	case refuses:
		if result = resultRefused; ownReasons[said.Title] {
			result = said.Title
		}
	case errors.Is(err, errLied):
		result = resultLied
		p.avoid(node, avoidLiar)
	case errors.Is(err, errStalled): // its store may be: that is no matter of others
		result = resultSilent
	case errors.Is(err, errDisputed):
		result = resultLied
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
