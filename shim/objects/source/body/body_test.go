package body_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/body"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSource has clients that send what a store would hold. A body cannot be missing, or be
// replaced once it is under way; all else is asked of it as of any source.
func TestSource(t *testing.T) {
	sourcetest.Run(t, func(*testing.T) sourcetest.Store {
		c := &clients{bodies: map[source.Reference]sent{}}
		return sourcetest.Store{Source: c, Bucket: "bodies", Once: true, Part: body.Chunk, Close: func() {},
			Put: func(ref source.Reference, contentType string, content []byte) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.bodies[ref] = sent{contentType, content}
				return nil
			},
			Delete: func(ref source.Reference) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.bodies, ref)
				return nil
			}}
	})
}

// clients send a body for each reference.
type clients struct {
	mu     sync.Mutex
	bodies map[source.Reference]sent
}

type sent struct {
	contentType string
	content     []byte
}

func (c *clients) Fetch(ctx context.Context, ref source.Reference, _ string, begin func(source.Object) (io.WriterAt, error)) error {
	c.mu.Lock()
	s, ok := c.bodies[ref]
	c.mu.Unlock()
	if !ok {
		return source.NotFound("bodies", ref)
	}
	b := body.Body{From: bytes.NewReader(s.content), Size: int64(len(s.content)), ContentType: s.contentType, Interrupt: func() {}}
	return b.Fetch(ctx, ref, "", func(o source.Object) (io.WriterAt, error) {
		o.Version = "a body is never another"
		return begin(o)
	})
}

// buffer takes a body and the object that it was begun with.
type buffer struct {
	object source.Object
	bytes  []byte
}

func (b *buffer) begin(o source.Object) (io.WriterAt, error) {
	b.object = o
	return b, nil
}

func (b *buffer) WriteAt(p []byte, at int64) (int, error) {
	if at != int64(len(b.bytes)) {
		return 0, errors.New("not in order")
	}
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

// Whatever the pieces are that a body comes in, and whether or not its length is known, all
// of it arrives in order.
func TestPieces(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 3*body.Chunk/16+1)
	for name, pieces := range map[string]func(io.Reader) io.Reader{
		"as they are": func(r io.Reader) io.Reader { return r },
		"halves":      iotest.HalfReader, "the end with the last bytes": iotest.DataErrReader,
	} {
		for _, size := range []int64{-1, int64(len(want))} {
			got := &buffer{}
			b := body.Body{From: pieces(bytes.NewReader(want)), Size: size, ContentType: "text/plain", Interrupt: func() {}}
			if err := b.Fetch(t.Context(), source.Reference{}, "", got.begin); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !bytes.Equal(got.bytes, want) || got.object.Size != size || got.object.ContentType != "text/plain" {
				t.Errorf("%s: %d bytes of %+v", name, len(got.bytes), got.object)
			}
		}
	}
}

// pausing is a client that fills the first read, and pauses in the second one. Then it has sent all.
type pausing struct {
	asked  int
	second chan<- int // gets how much it is asked for
	goOn   <-chan struct{}
}

func (c *pausing) Read(p []byte) (int, error) {
	switch c.asked++; c.asked {
	case 1:
		return len(p), nil
	case 2:
		c.second <- len(p)
		<-c.goOn
	}
	return 0, io.EOF
}

// However many bodies pause, few hold much memory; and who pauses for long holds little when he
// goes on.
func TestBodiesThatPauseHoldLittle(t *testing.T) {
	const bodies = body.ChunksMost + 50
	second, goOn := make(chan int), make(chan struct{})
	var all sync.WaitGroup
	for range bodies {
		all.Go(func() {
			b := body.Body{From: &pausing{second: second, goOn: goOn}, Size: -1, Interrupt: func() {}}
			if err := b.Fetch(t.Context(), source.Reference{}, "", (&buffer{}).begin); err != nil {
				t.Error(err)
			}
		})
	}
	held := map[int]int{}
	for range bodies {
		held[<-second]++
	}
	close(goOn)
	all.Wait()
	if held[body.Chunk] != body.ChunksMost || held[body.Small] != bodies-body.ChunksMost {
		t.Errorf("so many hold how many bytes: %v", held)
	}
	slow := &slowly{}
	if err := (body.Body{From: slow, Size: -1, Interrupt: func() {}}).Fetch(t.Context(), source.Reference{}, "", (&buffer{}).begin); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]int{body.Small, body.Chunk, body.Small, body.Small}, slow.asked); d != "" {
		t.Errorf("it was asked for (-want +got):\n%s", d)
	}
}

// slowly is a client that sends much, then little, and then nothing more.
type slowly struct{ asked []int }

func (c *slowly) Read(p []byte) (int, error) {
	c.asked = append(c.asked, len(p))
	switch len(c.asked) {
	case 1:
		return len(p), nil
	case 4:
		return 0, io.EOF
	}
	return 1, nil
}

// What goes wrong on the client's side is told as it was.
func TestABodyThatFails(t *testing.T) {
	gone := errors.New("gone")
	b := body.Body{From: io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(gone)), Size: -1, Interrupt: func() {}}
	got := &buffer{}
	if err := b.Fetch(t.Context(), source.Reference{}, "", got.begin); err != gone || len(got.bytes) != 10 {
		t.Errorf("%v after %d bytes", err, len(got.bytes))
	}
	b = body.Body{From: bytes.NewReader(make([]byte, 10)), Size: 11, Interrupt: func() {}}
	if err := b.Fetch(t.Context(), source.Reference{}, "", (&buffer{}).begin); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that is too short: %v", err)
	}
}

// A client that stands still does not keep Fetch from ending.
func TestABodyThatStandsStillIsInterrupted(t *testing.T) {
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	b := body.Body{From: from, Size: -1, Interrupt: func() { _ = from.CloseWithError(errors.New("interrupted")) }}
	ended := make(chan error)
	go func() { ended <- b.Fetch(ctx, source.Reference{}, "", (&buffer{}).begin) }()
	if _, err := to.Write([]byte("some")); err != nil {
		t.Fatal(err)
	}
	cancel()
	err := <-ended
	if p := problem.Of(err); p.Title != "InputCancelled" || p.Status != http.StatusServiceUnavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}
