package digest_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// content returns bytes that belong to the size.
func content(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(b)
	return b
}

func open(b []byte) func(int64) io.ReadCloser {
	return func(from int64) io.ReadCloser { return io.NopCloser(bytes.NewReader(b[from:])) }
}

func of(t testing.TB, b []byte) []byte {
	t.Helper()
	d, err := digest.Of(t.Context(), int64(len(b)), 0, open(b))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var sizes = []int{0, 1, 1000, digest.Block - 1, digest.Block, digest.Block + 1, 3*digest.Block + 7}

// A block's digest is BLAKE3 as others have it.
func TestOfBlock(t *testing.T) {
	for text, want := range map[string]string{
		"":    "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
		"abc": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
	} {
		if got := digest.OfBlock([]byte(text)); hex.EncodeToString(got[:]) != want {
			t.Errorf("of %q: %x", text, got)
		}
	}
}

func TestEachBlockIsCheckedByItself(t *testing.T) {
	for _, size := range sizes {
		b := content(size)
		d := of(t, b)
		if int64(len(d)) != digest.Length(int64(size)) {
			t.Errorf("%d bytes: %d bytes of digests", size, len(d))
		}
		for from := 0; from < size; from += digest.Block {
			sum := digest.OfBlock(b[from:min(size, from+digest.Block)])
			if !bytes.HasPrefix(d, sum[:]) {
				t.Errorf("%d bytes: the block at %d", size, from)
			}
			d = d[len(sum):]
		}
	}
}

// Any flipped bit is seen.
func TestDamageIsFound(t *testing.T) {
	b := content(3*digest.Block + 7)
	whole := of(t, b)
	for _, at := range []int{0, digest.Block - 1, digest.Block, 2*digest.Block + 5, len(b) - 1} {
		b[at] ^= 1
		if bytes.Equal(whole, of(t, b)) {
			t.Errorf("byte %d", at)
		}
		b[at] ^= 1
	}
	if !bytes.Equal(whole, of(t, b)) {
		t.Error("the same content has another digest")
	}
}

func TestWhatCannotBeReadHasNoDigest(t *testing.T) {
	broken := errors.New("broken")
	for name, in := range map[string]struct {
		size int64
		open func(int64) io.ReadCloser
		want error
	}{
		"too short": {digest.Block + 2, open(make([]byte, digest.Block+1)), io.EOF},
		"broken":    {5, func(int64) io.ReadCloser { return io.NopCloser(iotest.ErrReader(broken)) }, broken},
	} {
		if _, err := digest.Of(t.Context(), in.size, 0, in.open); !errors.Is(err, in.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// It rests before each block, and its end does not wait for that.
func TestOfRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := content(3*digest.Block + 7)
		if _, err := digest.Of(t.Context(), int64(len(b)), time.Second, open(b)); err != nil || time.Since(began) != 4*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		began = time.Now()
		if _, err := digest.Of(ctx, int64(len(b)), time.Second, open(b)); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second/2 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
