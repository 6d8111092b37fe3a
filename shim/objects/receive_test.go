package objects_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source/body"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// coming is a request for a body.
func coming(id string, limit int64) objects.Request {
	return objects.Request{ID: id, Function: "default/f", Store: "body", Limit: limit}
}

func of(from io.Reader, size int64) body.Body {
	return body.Body{From: from, Size: size, ContentType: "text/plain", Interrupt: func() {}}
}

// A body is an input like any other, whether or not its length is known before its end.
func TestReceive(t *testing.T) {
	for _, length := range []int64{size, -1} {
		n := start(t)
		i, err := n.Receive(t.Context(), coming("1", size), of(bytes.NewReader(content), length))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, i); !bytes.Equal(got, content) {
			t.Errorf("the reader's bytes are others: %d", len(got))
		}
		if _, spilled := i.Rest(); spilled || i.Wait(t.Context()) != nil || i.Received() != size {
			t.Errorf("%d bytes came, spilled: %t", i.Received(), spilled)
		}
		if o, err := i.Object(t.Context()); err != nil || o.Size != length && o.Size != size || o.ContentType != "text/plain" {
			t.Errorf("the object is %+v, %v", o, err)
		}
		if o := n.outcome(t); o.Reason != "" || o.Bytes != size || o.Store != "body" {
			t.Errorf("the outcome is %+v", o)
		}
		i.Release()
	}
}

// What comes is read as it comes.
func TestABodyIsReadWhileItComes(t *testing.T) {
	n := start(t)
	from, to := io.Pipe()
	i, err := n.Receive(t.Context(), coming("1", size), of(from, -1))
	if err != nil {
		t.Fatal(err)
	}
	defer i.Release()
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for at := range 10 {
		if _, err := to.Write(content[at : at+1]); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		if _, err := io.ReadFull(r, one); err != nil || one[0] != content[at] {
			t.Errorf("at %d: %q, %v", at, one, err)
		}
	}
	_ = to.Close()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Nothing is read of a body that cannot be had.
func TestReceiveRefuses(t *testing.T) {
	n := start(t)
	held, err := n.Receive(t.Context(), coming("1", size), of(bytes.NewReader(nil), 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		request objects.Request
		length  int64
		title   string
	}{
		{coming("2", size-1), size, "InputTooLarge"},
		{coming("2", 2*bufferLimit), bufferLimit + 1, "BufferTooSmall"},
		{coming("1", size), size, "DuplicateRequest"},
	} {
		i, err := n.Receive(t.Context(), c.request, of(never{t}, c.length))
		if i != nil || problem.Of(err).Title != c.title || objects.IsTooLarge(err) != (c.title == "InputTooLarge") {
			t.Errorf("%s: %v, %v", c.title, i, err)
		}
	}
	held.Release()
	again, err := n.Receive(t.Context(), coming("1", size), of(bytes.NewReader(nil), 0))
	if err != nil {
		t.Fatal("the identifier is not free again: ", err)
	}
	again.Release()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Receive(t.Context(), coming("3", size), of(never{t}, -1)); problem.Of(err).Title != "ShuttingDown" {
		t.Errorf("after the end: %v", err)
	}
}

// never is a body that must not be read.
type never struct{ t *testing.T }

func (n never) Read([]byte) (int, error) {
	n.t.Error("it is read")
	return 0, io.EOF
}

// A body that turns out to be too large, or whose client goes, fails its readers.
func TestABodyThatFails(t *testing.T) {
	gone := problem.New(http.StatusBadRequest, "ClientGone", "", "gone")
	from, to := io.Pipe()
	go func() { _ = to.CloseWithError(gone) }()
	for title, c := range map[string]struct {
		from   io.Reader
		status int
		field  string
	}{
		"InputTooLarge": {bytes.NewReader(append(content, 0)), http.StatusRequestEntityTooLarge, "headstart.dev/input-limit"},
		"ClientGone":    {from, http.StatusBadRequest, ""},
	} {
		n := start(t)
		i, err := n.Receive(t.Context(), coming("1", size), of(c.from, -1))
		if err != nil {
			t.Fatal(err)
		}
		failed(t, i, title, c.status, c.field)
		i.Release()
	}
}

// A full buffer loses nothing of a body: what it has, what came, and what is to come are the
// whole, however late the end is told.
func TestABodyThatSpills(t *testing.T) {
	const free = 2*body.Chunk + 100
	buf, err := buffer.Open(t.TempDir()+"/b", free)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	told, hear := make(chan struct{}), make(chan struct{})
	e := objects.New(objects.Config{Buffer: buf, Metrics: hears(func() { close(told); <-hear })})
	want := bytes.Repeat(content, 50)
	from := bytes.NewReader(want)
	i, err := e.Receive(t.Context(), coming("1", int64(len(want))), of(from, -1))
	if err != nil {
		t.Fatal(err)
	}
	stored := read(t, i)
	<-told
	go close(hear)
	rest, spilled := i.Rest()
	more, _ := io.ReadAll(from)
	if !spilled || len(stored) == 0 || len(rest) > body.Chunk || !bytes.Equal(slices.Concat(stored, rest, more), want) {
		t.Errorf("%d, %d and %d of %d bytes; spilled: %t", len(stored), len(rest), len(more), len(want), spilled)
	}
	i.Release()
	if err := e.Close(t.Context()); err != nil || buf.Used() != 0 {
		t.Errorf("%d bytes are left: %v", buf.Used(), err)
	}
}

// Nobody reads on for a request that is over, or in a daemon that ends.
func TestABodyIsInterrupted(t *testing.T) {
	for name, end := range map[string]func(*node, *objects.Input){
		"released": func(_ *node, i *objects.Input) { i.Release() },
		"closed":   func(n *node, _ *objects.Input) { _ = n.Close(context.Background()) },
	} {
		n := start(t)
		from, to := io.Pipe()
		b := of(from, -1)
		b.Interrupt = func() { _ = from.CloseWithError(errors.New("interrupted")) }
		i, err := n.Receive(t.Context(), coming("1", size), b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write([]byte("some")); err != nil {
			t.Fatal(err)
		}
		end(n, i)
		if err := i.Wait(t.Context()); problem.Of(err).Title != "InputCancelled" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "closed" {
			i.Release()
		}
	}
}

// hears hears of outcomes.
type hears func()

func (h hears) Ended(objects.Outcome) { h() }
func (hears) Evicted(string)          {}
