// Package body is the source of one request's own body, which comes from its client, at the
// client's pace and once.
package body

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Chunk is how much of a body is read at once at most, in bytes. It is all that is outside
// of what the body is written to.
const Chunk = 64 << 10

// Who comes slowly holds what he is read into for as long as he likes. So all begin with little of
// it, and the most that others have at the same time is 16 MiB.
const (
	// small is how much is read at once of a body that does not fill it, in bytes.
	small = 4 << 10
	// chunksMost is how many are read by Chunk.
	chunksMost = 256
)

var (
	chunks = sync.Pool{New: func() any { return new([Chunk]byte) }}
	// chunksTaken has one for each that is in use.
	chunksTaken = make(chan struct{}, chunksMost)
)

// room is what a body is read into: as much as it has filled of late.
type room struct {
	small [small]byte
	large *[Chunk]byte // nil: none
}

func (r *room) bytes() []byte {
	if r.large != nil {
		return r.large[:]
	}
	return r.small[:]
}

// filled takes how much the last read has brought.
func (r *room) filled(n int) {
	switch {
	case n < small:
		r.leave()
	case r.large == nil:
		select {
		case chunksTaken <- struct{}{}:
			r.large = chunks.Get().(*[Chunk]byte) // it has nothing else
		default:
		}
	}
}

func (r *room) leave() {
	if r.large != nil {
		chunks.Put(r.large)
		r.large = nil
		<-chunksTaken
	}
}

// Body is a request's body. Its Fetch is that of source.Source, once and whatever the
// reference.
type Body struct {
	// From is read by one goroutine, until it ends or fails.
	From io.Reader
	// Size is the body's length in bytes, or -1 if nobody knows it before the end.
	Size        int64
	ContentType string
	// Interrupt ends a Read of From that is under way, and all after it. It is called at
	// most once, when Fetch is to end early, and Fetch waits for its return.
	Interrupt func()
}

// Fetch ends when From does, or ctx. An error of From is returned as it is.
func (b Body) Fetch(ctx context.Context, _ source.Reference, _ string, begin func(source.Object) (io.WriterAt, error)) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	to, err := begin(source.Object{Size: b.Size, ContentType: b.ContentType})
	if err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		b.Interrupt()
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	return b.copy(ctx, to)
}

func (b Body) copy(ctx context.Context, to io.WriterAt) error {
	var room room
	defer room.leave()
	for at := int64(0); ; {
		into := room.bytes()
		n, err := b.From.Read(into)
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if n > 0 {
			if _, err := to.WriteAt(into[:n], at); err != nil {
				return err
			}
			at += int64(n)
			room.filled(n)
		}
		switch {
		case err == io.EOF && at < b.Size:
			return fmt.Errorf("reading a body of %d bytes: %w after %d", b.Size, io.ErrUnexpectedEOF, at)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// ended says that a body was not read to its end, because its time was up or because nobody
// waits for it any more.
func ended(ctx context.Context) error {
	p := problem.New(http.StatusServiceUnavailable, "InputCancelled", "", "nobody waits for the request's body any more")
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p = problem.New(
			http.StatusGatewayTimeout, problem.ReasonStoreTimeout, "", "the request's body did not come in time",
		)
	}
	return source.Because(p, context.Cause(ctx))
}
