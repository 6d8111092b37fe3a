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

	// Set by the first part, before there are others.
	known  *source.Object
	whole  bool
	writer io.WriterAt

	next    atomic.Int64    // where the next part to claim begins
	claimed context.Context // over when no part is left to claim
	all     context.CancelFunc
}

// first reads the first part, which finds out how many there are, and then its share
// of the others.
func (f *fetch) first(ctx context.Context) error {
	if err := f.read(ctx, 0, f.places.Wait); err != nil || f.whole {
		return err
	}
	return f.others(ctx)
}

// others claims parts in order, so that the prefix grows early, until none is left.
func (f *fetch) others(ctx context.Context) error {
	for {
		at, ok := f.claim()
		if !ok {
			return nil
		}
		if err := f.read(ctx, at, f.places.Wait); err != nil {
			return err
		}
	}
}

// claim returns where the next part begins, if one is left.
func (f *fetch) claim() (at int64, ok bool) {
	if at = f.next.Add(f.part) - f.part; at < f.known.Size {
		return at, true
	}
	f.all()
	return 0, false
}

// help is others by a connection besides the object's own, for a part at a time. It claims a part when it has its
// place, and keeps that until the part is there: what has been claimed does not wait behind other objects.
func (f *fetch) help(ctx context.Context) error {
	for {
		leave, err := f.places.WaitExtra(f.claimed)
		if err != nil { // nothing is left to claim
			return nil
		}
		more, err := f.helpOnce(ctx)
		leave()
		if !more || err != nil {
			return err
		}
	}
}

func (f *fetch) helpOnce(ctx context.Context) (more bool, err error) {
	at, ok := f.claim()
	if !ok {
		return false, nil
	}
	return true, f.read(ctx, at, func(context.Context) (leave func(), err error) { return func() {}, nil })
}

// read reads the part that begins at at. When an attempt breaks off, the next one goes
// on where it ended. Each attempt waits for a place.
func (f *fetch) read(ctx context.Context, at int64, wait func(context.Context) (leave func(), err error)) error {
	from, end := at, at+f.part
	var tried vain
	breaks := 0
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, longestPause
	for {
		leave, err := wait(ctx)
		if err != nil {
			return source.Ended(ctx, f.store, f.ref)
		}
		asked := time.Now()
		n, err := f.attempt(ctx, at, end)
		leave()
		at += n
		var again *againError
		if !errors.As(err, &again) {
			return err
		}
		switch took := time.Since(asked); {
		case n > 0:
			tried = vain{}
			breaks++
			pause.Reset()
		case took >= Stall:
			tried.stalls++
		default:
			tried.away += took
		}
		if breaks > Breaks || tried.stalls == Stalls || tried.away >= Away || !f.worthwhile(at > from) {
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

// attempt reads from at up to the end of the part or of the object, and returns how
// many bytes it has written. One of Again's errors is worth another attempt.
func (f *fetch) attempt(ctx context.Context, at, end int64) (int64, error) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(Stall, func() { cancel(errStalled) })
	defer watchdog.Stop()

	if f.known != nil {
		end = f.until(end)
	}
	answer, err := f.from.Open(watched, at, end, f.known)
	if err != nil {
		return 0, f.failure(ctx, watched, f.ref, err)
	}
	defer answer.Body.Close() // What was needed of it has been read.
	watchdog.Stop()
	if f.writer == nil {
		if err := f.start(ctx, answer); err != nil {
			return 0, err
		}
	} else if answer.Object.Version != f.known.Version || answer.Object.Size != f.known.Size {
		return 0, source.Changed(f.store, f.ref)
	}
	body := &watchedBody{answer.Body, watchdog}
	if err := skip(body, at-answer.From); err != nil {
		return 0, f.failure(ctx, watched, f.ref, err)
	}
	written, err := f.copy(body, at, f.until(end))
	var broken *bodyError
	if errors.As(err, &broken) {
		return written, f.failure(ctx, watched, f.ref, broken.error)
	}
	return written, err
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

// copy writes what the body has from at up to end.
func (f *fetch) copy(body io.Reader, at, end int64) (int64, error) {
	var written int64
	want := end - at
	buf := make([]byte, min(block, want))
	for written < want {
		n, err := body.Read(buf[:min(int64(len(buf)), want-written)])
		if n > 0 {
			if _, err := f.writer.WriteAt(buf[:n], at+written); err != nil {
				return written, err
			}
			written += int64(n)
		}
		switch {
		case err == io.EOF && f.known.Size < 0:
			return written, nil
		case err != nil && written < want:
			return written, &bodyError{fmt.Errorf("after %d bytes: %w", written, err)}
		}
	}
	return written, nil
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
	f.next.Store(f.part)
	parts := (answer.Object.Size + f.part - 1) / f.part
	for range min(parts, Connections) - 1 {
		f.group.Go(func() error { return f.help(ctx) })
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
