package digest_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// content returns bytes that belong to the size.
func content(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(b)
	return b
}

func of(t testing.TB, b []byte) digest.Digest {
	t.Helper()
	d, err := digest.Of(t.Context(), bytes.NewReader(b), int64(len(b)))
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
		if d.Size != int64(size) || len(d.Blocks) != (size+digest.Block-1)/digest.Block {
			t.Errorf("%d bytes: %d in %d blocks", size, d.Size, len(d.Blocks))
		}
		for i, sum := range d.Blocks {
			block := b[i*digest.Block : min(size, (i+1)*digest.Block)]
			if digest.OfBlock(block) != sum {
				t.Errorf("%d bytes: block %d", size, i)
			}
		}
	}
}

// Any flipped bit is seen, and in which block it is.
func TestDamageIsFoundInItsBlock(t *testing.T) {
	b := content(3*digest.Block + 7)
	whole := of(t, b)
	for _, at := range []int{0, digest.Block - 1, digest.Block, 2*digest.Block + 5, len(b) - 1} {
		b[at] ^= 1
		damaged := of(t, b)
		if block, differs := whole.Differs(damaged); !differs || block != at/digest.Block {
			t.Errorf("byte %d: block %d, %v", at, block, differs)
		}
		if damaged.Root() == whole.Root() {
			t.Errorf("byte %d: the root is the same", at)
		}
		b[at] ^= 1
	}
	if _, differs := whole.Differs(of(t, b)); differs {
		t.Error("content differs from itself")
	}
	if _, differs := whole.Differs(of(t, b[:len(b)-1])); !differs {
		t.Error("content that is a byte shorter does not differ")
	}
}

func TestRootsNameContents(t *testing.T) {
	seen := map[digest.Sum]int{}
	for _, size := range sizes {
		root := of(t, content(size)).Root()
		if other, is := seen[root]; is {
			t.Errorf("%d and %d bytes have the same root", size, other)
		}
		seen[root] = size
	}
}

func TestContentOfAnotherSizeIsAnError(t *testing.T) {
	for _, c := range []struct {
		has, want int
		text      string
	}{
		{digest.Block, digest.Block + 1, "EOF"}, {0, 1, "EOF"},
		{digest.Block + 1, digest.Block, "longer than"}, {1, 0, "longer than"},
	} {
		_, err := digest.Of(t.Context(), bytes.NewReader(content(c.has)), int64(c.want))
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%d bytes for %d: %v", c.has, c.want, err)
		}
	}
	broken := errors.New("broken")
	for _, size := range []int64{0, 5, digest.Block} {
		full := io.MultiReader(bytes.NewReader(content(int(size))), iotest.ErrReader(broken))
		if _, err := digest.Of(t.Context(), full, size); !errors.Is(err, broken) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := digest.Of(ctx, bytes.NewReader(content(1)), 1); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestAStoredDigestIsReadAgain(t *testing.T) {
	for _, size := range sizes {
		d := of(t, content(size))
		stored := d.Append([]byte("before"))[len("before"):]
		got, err := digest.Parse(stored)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("%d bytes (-stored +read):\n%s", size, diff)
		}
		for at := range stored {
			stored[at] ^= 0x10
			if _, err := digest.Parse(stored); err == nil {
				t.Errorf("%d bytes: damage at %d of %d is not seen", size, at, len(stored))
			}
			stored[at] ^= 0x10
		}
		for end := range stored {
			if _, err := digest.Parse(stored[:end]); err == nil {
				t.Errorf("%d bytes: the first %d of %d are read", size, end, len(stored))
			}
		}
	}
}

// FuzzParse has stored digests with a right root, of everything: what is read is what was stored.
func FuzzParse(f *testing.F) {
	for _, size := range sizes {
		stored := of(f, content(size)).Append(nil)
		f.Add(stored[:len(stored)-len(digest.Sum{})])
	}
	f.Add([]byte("HSDIGST\x01\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("HSDIGST\x01\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = digest.Parse(body)
		root := digest.OfBlock(body)
		stored := append(bytes.Clone(body), root[:]...)
		d, err := digest.Parse(stored)
		if err != nil {
			return
		}
		if d.Size < 0 || int64(len(d.Blocks)) != d.Size/digest.Block+min(1, d.Size%digest.Block) || d.Root() != root {
			t.Errorf("%d bytes in %d blocks", d.Size, len(d.Blocks))
		}
		if !bytes.Equal(d.Append(nil), stored) {
			t.Error("it is stored otherwise")
		}
	})
}

func BenchmarkOfBlock(b *testing.B) {
	block := content(digest.Block)
	b.SetBytes(digest.Block)
	for b.Loop() {
		digest.OfBlock(block)
	}
}
