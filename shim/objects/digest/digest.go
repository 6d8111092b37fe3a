// Package digest says whether content is still what it was: by BLAKE3 of each block, so that a block can be checked
// without the others.
package digest

import (
	"context"
	"fmt"
	"io"
	"time"

	"lukechampine.com/blake3"
)

// Block is the size of all blocks but the last one, in bytes: a millisecond of hashing, and 16 KiB of digests for
// 1 GiB.
const Block = 2 << 20

// sumSize is that of a BLAKE3 digest in bytes.
const sumSize = 32

// Sum is a BLAKE3 digest.
type Sum [sumSize]byte

// OfBlock is a block's digest.
func OfBlock(block []byte) Sum { return blake3.Sum256(block) }

// OfRead is OfBlock of what is read.
func OfRead(block io.Reader) (sum Sum, err error) {
	h := blake3.New(len(sum), nil)
	_, err = io.Copy(h, block)
	h.Sum(sum[:0])
	return sum, err
}

// Length is how many bytes Of returns for content of a size.
func Length(size int64) int64 {
	blocks := size / Block
	if size%Block > 0 {
		blocks++
	}
	return blocks * sumSize
}

// Of returns the digests of the blocks of content, one after the other. Each block is read by a reader of its own, so
// that nothing stays open for long, and after a rest.
func Of(ctx context.Context, size int64, rest time.Duration, open func(from int64) io.ReadCloser) ([]byte, error) {
	var sums []byte
	h := blake3.New(sumSize, nil)
	for from := int64(0); from < size; from += Block {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		block := open(from)
		h.Reset()
		_, err := io.CopyN(h, block, min(Block, size-from))
		_ = block.Close() // it was only read from
		if err != nil {
			return nil, fmt.Errorf("reading %d bytes of content, from byte %d on: %w", size, from, err)
		}
		sums = h.Sum(sums)
	}
	return sums, nil
}
