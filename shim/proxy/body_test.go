package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/proxy"
)

// However far it was read before, and wherever that broke off, a body begins from its start.
func TestABodyIsSentAgain(t *testing.T) {
	for size := range slices.Values([]int{0, 1, 5000, proxy.BodyKept, proxy.BodyKept + 1, 3 * proxy.BodyKept}) {
		for part := range slices.Values([]int{0, 1, 4000, proxy.BodyKept}) {
			t.Run(fmt.Sprint(part, " of ", size), func(t *testing.T) {
				want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
				open, whole, leave := proxy.OpenBody(io.NopCloser(bytes.NewReader(want)))
				defer leave()
				once := open()
				_, _ = io.ReadFull(once, make([]byte, part))
				_ = once.Close()
				if !whole() {
					t.Fatal("what was kept is lost")
				}
				got, err := io.ReadAll(open())
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes come, of %d: %v", len(got), len(want), err)
				}
				if whole() != (size <= proxy.BodyKept) {
					t.Errorf("it can be sent again: %t", whole())
				}
			})
		}
	}
}

// Few of a node's bodies have much of its memory. The others pass as well, and cannot be sent again
// when more than a little of them was taken.
func TestBodiesShareTheNodesMemory(t *testing.T) {
	const size = 3 * proxy.BodySmall
	want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	pass := func() (largest int, whole bool, leave func()) {
		t.Helper()
		from := &measured{Reader: bytes.NewReader(want)}
		open, isWhole, leave := proxy.OpenBody(from)
		body := open()
		defer body.Close()
		if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes come, of %d: %v", len(got), size, err)
		}
		return from.largest, isWhole(), leave
	}
	for range proxy.BodiesLarge {
		largest, whole, leave := pass()
		defer leave()
		if largest != proxy.BodyKept || !whole {
			t.Fatalf("it is read by %d bytes, and can be sent again: %t", largest, whole)
		}
	}
	largest, whole, leave := pass()
	if leave(); largest != proxy.BodySmall || whole {
		t.Errorf("one more is read by %d bytes, and can be sent again: %t", largest, whole)
	}
	if n := proxy.BodiesTaken(); n != proxy.BodiesLarge {
		t.Errorf("%d bodies have a large room", n)
	}
}

// measured notes how much it is asked for at once.
type measured struct {
	io.Reader
	largest int
}

func (m *measured) Read(p []byte) (int, error) {
	m.largest = max(m.largest, len(p))
	return m.Reader.Read(p)
}

func (*measured) Close() error { return nil }

// A reader that was given up while it read takes nothing away from the next.
func TestAReadUnderWayTakesNothing(t *testing.T) {
	from, write := io.Pipe()
	open, _, _ := proxy.OpenBody(from)
	once, given := open(), make(chan struct{})
	go func() {
		defer close(given)
		_, _ = once.Read(make([]byte, 100))
	}()
	_, _ = io.WriteString(write, "for the next") // it is in Read, or gets there
	_ = once.Close()
	go func() { _, _ = io.WriteString(write, ", and more"); _ = write.Close() }()
	if got, err := io.ReadAll(open()); err != nil || string(got) != "for the next, and more" {
		t.Errorf("it reads %q, %v", got, err)
	}
	<-given
	if _, err := once.Read(make([]byte, 1)); err == nil {
		t.Error("what is closed can be read")
	}
}

// A reader need not wait for a client that pauses: what comes then is the next one's.
func TestAReadEndsWithItsBody(t *testing.T) {
	from, write := io.Pipe()
	open, _, _ := proxy.OpenBody(from)
	once, ended := open(), make(chan error)
	go func() {
		_, err := once.Read(make([]byte, 100))
		ended <- err
	}()
	_ = once.Close()
	if err := <-ended; !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("it ends with %v", err)
	}
	go func() { _, _ = io.WriteString(write, "all of it"); _ = write.Close() }()
	if got, err := io.ReadAll(open()); err != nil || string(got) != "all of it" {
		t.Errorf("the next reads %q, %v", got, err)
	}
}
