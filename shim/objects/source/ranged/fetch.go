package ranged

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// errStalled cancels an attempt that the store has left without bytes.
var errStalled = fmt.Errorf("no byte for %v", Stall)

// fetch is one object on its way.
type fetch struct {
	*Fetcher
	ref   source.Reference
	from  Object
	begin func(source.Object) (io.WriterAt, error)
	group *errgroup.Group
	ctx   context.Context // of the group

	// Set by the first part, before there are others.
	known  *source.Object
	whole  bool
	writer io.WriterAt

	parts   parts
	claimed context.Context // over when no part is left to claim, or to take over
	all     context.CancelFunc
}

// first reads the first part, which finds out how many there are, and then its share
// of the others.
func (f *fetch) first(ctx context.Context) error {
	leave, err := f.places.Wait(ctx)
	if err != nil {
		return source.Ended(ctx, f.store, f.ref)
	}
	p := f.parts.first(ctx)
	if err := f.read(p, leave, f.places.Wait); err != nil || f.whole {
		return err
	}
	return f.others(ctx, p.rate())
}

// others reads one part after the other until none is left. rate is that of the part before. It claims a part when it
// has a place: what another connection reads does not wait behind other objects when it is taken over.
func (f *fetch) others(ctx context.Context, rate float64) error {
	for {
		leave, err := f.places.Wait(f.claimed)
		switch {
		case ctx.Err() != nil && err != nil:
			return source.Ended(ctx, f.store, f.ref)
		case err != nil:
			return nil
		}
		p := f.claim(ctx, rate)
		if p == nil {
			leave()
			return nil
		}
		if err := f.read(p, leave, f.places.Wait); err != nil {
			return err
		}
		rate = p.rate()
	}
}

// claim returns nil if no part is left.
func (f *fetch) claim(ctx context.Context, rate float64) *part {
	if f.known.Version == "" {
		rate = 0 // nobody could tell whether the rest is of the same object
	}
	p := f.parts.claim(ctx, rate)
	if p == nil {
		f.all()
	}
	return p
}

// help is others by a connection besides the object's own. It keeps its place until a part is there: what has been
// claimed does not wait behind other objects.
func (f *fetch) help(ctx context.Context) error {
	rate := 0.0
	for {
		leave, err := f.places.WaitExtra(f.claimed)
		if err != nil { // nothing is left to claim
			return nil
		}
		p := f.claim(ctx, rate)
		if p != nil {
			stay := func() {}
			err = f.read(p, stay, func(context.Context) (leave func(), err error) { return stay, nil })
			rate = p.rate()
		}
		leave()
		if p == nil || err != nil {
			return err
		}
	}
}

// read reads a part, unless another connection takes it over. When an attempt breaks off, the next one goes
// on where it ended. The first one has a place, which leave gives back; each other one waits for one.
func (f *fetch) read(p *part, leave func(), wait func(context.Context) (leave func(), err error)) error {
	err := f.readPart(p, leave, wait)
	taken := context.Cause(p.ctx) == errTaken
	if f.parts.leave(p) {
		f.all()
	}
	if !taken {
		return err
	}
	select {
	case <-p.resumed:
	case <-f.ctx.Done():
	}
	return nil
}

func (f *fetch) readPart(p *part, leave func(), wait func(context.Context) (leave func(), err error)) error {
	ctx := p.ctx
	var tried vain
	breaks := 0
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, longestPause
	for {
		asked, at := time.Now(), p.at.Load()
		err := f.attempt(p)
		leave()
		var again *againError
		if !errors.As(err, &again) {
			return err
		}
		switch took := time.Since(asked); {
		case p.at.Load() > at:
			tried = vain{}
			breaks++
			pause.Reset()
		case took >= Stall:
			tried.stalls++
		default:
			tried.away += took
		}
		if breaks > Breaks || tried.stalls == Stalls || tried.away >= Away || !f.worthwhile(p.at.Load() > p.from) {
			return again.final
		}
		// The last try is when the time is over, and not before.
		rest := min(pause.NextBackOff(), Away-tried.away)
		tried.away += rest
		select {
		case <-ctx.Done():
			return source.Ended(ctx, f.store, f.ref)
		case <-time.After(rest):
		}
		if leave, err = wait(ctx); err != nil {
			return source.Ended(ctx, f.store, f.ref)
		}
	}
}

// vain is how a part was asked for since something of it came.
type vain struct {
	stalls int           // tries that took Stall or longer
	away   time.Duration // what the others and the pauses took
}

// worthwhile says whether a part of which some may have come is asked for again: without a version
// nobody can tell whether what comes next is of the same object.
func (f *fetch) worthwhile(some bool) bool { return !some || f.known.Version != "" }

// attempt reads what is left of a part, or of the object if that ends before. One of Again's errors is worth another
// attempt.
func (f *fetch) attempt(p *part) error {
	ctx, at, end := p.ctx, p.at.Load(), p.end
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(Stall, func() { cancel(errStalled) })
	defer watchdog.Stop()

	if f.known != nil {
		end = f.until(end)
	}
	answer, err := f.from.Open(watched, at, end, f.known)
	p.answered()
	if err != nil {
		return f.failure(ctx, watched, f.ref, err)
	}
	defer answer.Body.Close() // What was needed of it has been read.
	watchdog.Stop()
	if f.writer == nil {
		if err := f.start(ctx, answer); err != nil {
			return err
		}
	} else if answer.Object.Version != f.known.Version || answer.Object.Size != f.known.Size {
		return source.Changed(f.store, f.ref)
	}
	body := &watchedBody{answer.Body, watchdog}
	if err := skip(body, at-answer.From); err != nil {
		return f.failure(ctx, watched, f.ref, err)
	}
	err = f.copy(body, &p.at, f.until(end))
	var broken *bodyError
	if errors.As(err, &broken) {
		return f.failure(ctx, watched, f.ref, broken.error)
	}
	return err
}

// until is where an attempt ends that was to end at end.
func (f *fetch) until(end int64) int64 {
	switch {
	case f.known.Size < 0:
		return math.MaxInt64
	case f.whole:
		return f.known.Size
	}
	return min(end, f.known.Size)
}

// bodyError is an error of the store's and not of the writer's.
type bodyError struct{ error }

// copy writes what the body has from at up to end, and moves at.
func (f *fetch) copy(body io.Reader, at *atomic.Int64, end int64) error {
	began := at.Load()
	buf := make([]byte, min(block, end-began))
	for at.Load() < end {
		n, err := body.Read(buf[:min(int64(len(buf)), end-at.Load())])
		if n > 0 {
			if _, err := f.writer.WriteAt(buf[:n], at.Load()); err != nil {
				return err
			}
			at.Add(int64(n))
		}
		switch {
		case err == io.EOF && f.known.Size < 0:
			return nil
		case err != nil && at.Load() < end:
			return &bodyError{fmt.Errorf("after %d bytes: %w", at.Load()-began, err)}
		}
	}
	return nil
}

// skip reads what comes before the bytes that are needed.
func skip(body io.Reader, n int64) error {
	if n <= 0 {
		return nil
	}
	_, err := io.CopyN(io.Discard, body, n)
	return err
}

// watchedBody lets the watchdog run while it reads.
type watchedBody struct {
	io.Reader
	watchdog *time.Timer
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.watchdog.Reset(Stall)
	defer b.watchdog.Stop()
	return b.Reader.Read(p)
}

// start tells the caller of the object and begins to read its other parts.
func (f *fetch) start(ctx context.Context, answer Answer) error {
	writer, err := f.begin(answer.Object)
	if err != nil {
		return err
	}
	object := answer.Object
	f.known, f.whole, f.writer = &object, answer.Whole || answer.Object.Size < 0, writer
	if f.whole {
		return nil
	}
	f.parts.until = answer.Object.Size
	parts := (answer.Object.Size + f.part - 1) / f.part
	for range min(parts, Connections) - 1 {
		f.group.Go(func() error { return f.help(f.ctx) })
	}
	return nil
}

// failure turns what ended an attempt into what Fetch returns, or into one of Again's
// errors. watched is the attempt's context.
func (f *Fetcher) failure(ctx, watched context.Context, ref source.Reference, err error) error {
	var (
		own         *problem.Problem
		again       *againError
		unchanged   *source.Unchanged
		certificate *tls.CertificateVerificationError
	)
	switch {
	case ctx.Err() != nil:
		return source.Ended(ctx, f.store, ref)
	case errors.As(err, &again), errors.As(err, &own), errors.As(err, &unchanged):
		return err
	case errors.As(err, &certificate):
		return source.Because(source.Unavailable(f.store, "its certificate is not trusted"), err)
	case context.Cause(watched) == errStalled:
		return Again(source.Because(source.TimedOut(f.store), errStalled))
	}
	return Again(source.Because(source.Unavailable(f.store, "the connection failed"), err))
}

// final is the error that is left when nothing is tried again.
func final(err error) error {
	var again *againError
	if errors.As(err, &again) {
		return again.final
	}
	return err
}
