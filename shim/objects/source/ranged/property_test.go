package ranged_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// manner is how a store answers once.
type manner struct {
	refuses bool
	answers time.Duration // how long it takes to answer
	byteIn  time.Duration // how long a byte takes
	breaks  int           // after so many bytes; -1: not at all
	deaf    bool          // a read ends when its connection does, and not before
}

func manners(t *rapid.T) []manner {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) manner {
		return manner{
			refuses: rapid.IntRange(0, 9).Draw(t, "refuses") == 9,
			answers: time.Duration(rapid.IntRange(0, 300).Draw(t, "answers")) * time.Millisecond,
			byteIn:  time.Duration(rapid.SampledFrom([]int{0, 1, 10, 100, 4000}).Draw(t, "byte")) * time.Millisecond,
			breaks:  rapid.SampledFrom([]int{-1, -1, -1, -1, 0, 1, 5, 9}).Draw(t, "breaks"),
			deaf:    rapid.IntRange(0, 9).Draw(t, "deaf") == 9,
		}
	}), 1, 40).Draw(t, "manners")
}

// moody is an object whose store answers in its manners, one after the other.
type moody struct {
	text    string
	object  source.Object
	whole   bool
	manners []manner
	asked   atomic.Int64
	open    atomic.Int64 // bodies
}

func (o *moody) Open(ctx context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
	m := o.manners[int(o.asked.Add(1)-1)%len(o.manners)]
	select {
	case <-ctx.Done():
		return ranged.Answer{}, ctx.Err()
	case <-time.After(m.answers):
	}
	if m.refuses {
		return ranged.Answer{}, errors.New("connection refused")
	}
	if o.whole {
		at, end = 0, int64(len(o.text))
	}
	o.open.Add(1)
	return ranged.Answer{Object: o.object, From: at, Whole: o.whole,
		Body: &moodyBody{o: o, ctx: ctx, manner: m, rest: o.text[at:min(end, int64(len(o.text)))]}}, nil
}

type moodyBody struct {
	manner
	o     *moody
	ctx   context.Context
	rest  string
	begun int
	once  sync.Once
}

func (b *moodyBody) Read(p []byte) (int, error) {
	ended := b.ctx.Done()
	if b.deaf {
		ended = nil
	}
	select {
	case <-ended:
		return 0, b.ctx.Err()
	case <-time.After(b.byteIn):
	}
	switch {
	case b.begun == b.breaks:
		return 0, io.ErrUnexpectedEOF
	case b.rest == "":
		return 0, io.EOF
	}
	p[0], b.rest = b.rest[0], b.rest[1:]
	b.begun++
	return 1, nil
}

func (b *moodyBody) Close() error {
	b.once.Do(func() { b.o.open.Add(-1) })
	return nil
}

// once is a sink that notes how often each byte came.
type once struct {
	mu      sync.Mutex
	content []byte
	times   []int
}

func (s *once) begin(o source.Object) (io.WriterAt, error) {
	s.content, s.times = make([]byte, max(o.Size, 0)), make([]int, max(o.Size, 0))
	return s, nil
}

func (s *once) WriteAt(p []byte, at int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more := int(at) + len(p) - len(s.content); more > 0 { // of an object of unknown size
		s.content, s.times = append(s.content, make([]byte, more)...), append(s.times, make([]int, more)...)
	}
	copy(s.content[at:], p)
	for i := range p {
		s.times[int(at)+i]++
	}
	return len(p), nil
}

// However fast connections are, and wherever they break: what is fetched is whole, each byte has come once, and nothing
// is left of a fetch that has ended, nor a place taken.
func TestAFetchIsWholeOrFails(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Repeat("0123456789abc", 20)[:rapid.OneOf(rapid.IntRange(0, 260), rapid.IntRange(0, 2*part)).Draw(r, "size")]
		o := &moody{text: text, object: source.Object{Size: int64(len(text)), Version: "v"}, manners: manners(r),
			whole: rapid.IntRange(0, 4).Draw(r, "whole") == 4}
		if o.whole && rapid.Bool().Draw(r, "unknown") {
			o.object.Size = -1
		}
		if rapid.IntRange(0, 4).Draw(r, "version") == 4 {
			o.object.Version = ""
		}
		fetches := rapid.IntRange(1, 3).Draw(r, "fetches")
		cancelled := time.Duration(rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 20000)).Draw(r, "cancelled")) * time.Millisecond
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			f := ranged.New("edge", part)
			var group sync.WaitGroup
			errs, sinks := make([]error, fetches), make([]once, fetches)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if cancelled > 0 {
				defer time.AfterFunc(cancelled, cancel).Stop()
			}
			for i := range fetches {
				group.Go(func() { errs[i] = f.Fetch(ctx, ref, o, sinks[i].begin) })
			}
			group.Wait()
			for i, err := range errs {
				for _, n := range sinks[i].times {
					if n > 1 {
						wrong = append(wrong, "a byte came twice")
					}
				}
				switch {
				case err == nil && !bytes.Equal(sinks[i].content, []byte(text)):
					wrong = append(wrong, "not all came: "+string(sinks[i].content))
				case err != nil && problem.Of(err).Title == "":
					wrong = append(wrong, "no problem: "+err.Error())
				}
			}
			if n := o.open.Load(); n != 0 {
				wrong = append(wrong, "bodies are open")
			}
			// All connections are free: nine parts take two rounds.
			calm := &moody{text: strings.Repeat("x", 9*part), object: source.Object{Size: 9 * part, Version: "v"},
				manners: []manner{{answers: time.Second, breaks: -1}}}
			var s once
			began := time.Now()
			if err := f.Fetch(t.Context(), ref, calm, s.begin); err != nil || time.Since(began) > 2*time.Second {
				wrong = append(wrong, "places are taken: "+time.Since(began).String())
			}
		})
		if len(wrong) > 0 {
			r.Fatal(wrong)
		}
	})
}

// A connection takes a part over when it has its place. Otherwise the part would wait behind other objects, and would
// be there later than by the slower connection.
func TestAPartThatIsTakenOverDoesNotWait(t *testing.T) {
	const answers = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f := ranged.New("edge", part)
		var group sync.WaitGroup
		fetch := func(function string, o ranged.Object, begin func(source.Object) (io.WriterAt, error)) {
			group.Go(func() {
				if err := f.Fetch(fair.For(t.Context(), function), ref, o, begin); err != nil {
					t.Error(err)
				}
			})
		}
		others := func(n int, function string) {
			for range n {
				one := &moody{text: "x", object: source.Object{Size: 1, Version: "v"},
					manners: []manner{{answers: ranged.Stall - time.Second, breaks: -1}}}
				fetch(function, one, (&sourcetest.Sink{}).Begin)
			}
		}
		others(1, "b/f") // so that a has as many places as one object needs
		text := strings.Repeat("0123456789", 30)
		o := &object{open: func(ctx context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
			time.Sleep(answers)
			m := manner{breaks: -1}
			switch at {
			case 0:
				m.byteIn = answers / 2 / part // the others have begun when it is there
			case part:
				m.byteIn = 5 * answers
			}
			return ranged.Answer{Object: source.Object{Size: 300, Version: "v"}, From: at,
				Body: &moodyBody{o: &moody{}, ctx: ctx, manner: m, rest: text[at:end]}}, nil
		}}
		began, s := time.Now(), &sourcetest.Sink{}
		var second time.Duration
		begin := func(o source.Object) (io.WriterAt, error) {
			w, err := s.Begin(o)
			return writerFunc(func(p []byte, at int64) (int, error) {
				if at+int64(len(p)) == 2*part {
					second = time.Since(began)
				}
				return w.WriteAt(p, at)
			}), err
		}
		fetch("a/f", o, begin)
		time.Sleep(answers * 6 / 5)
		others(6, "a/f") // have all places but those of the object's own connection and of the slow one
		time.Sleep(answers * 13 / 10)
		others(7, "a/f")
		group.Wait()
		if most := answers*2 + 5*answers*part; second > most || string(s.Content) != text {
			t.Errorf("it was there after %v, and by one connection would have been after %v", second, most)
		}
	})
}

type writerFunc func(p []byte, at int64) (int, error)

func (f writerFunc) WriteAt(p []byte, at int64) (int, error) { return f(p, at) }
