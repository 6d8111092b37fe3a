// Package digest says whether content is still what it was: BLAKE3 of each block, so that a block can be checked
// without the others, and one over these, which names the content.
package digest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"lukechampine.com/blake3"
)

// Block is the size of all blocks but the last one, in bytes: half a millisecond of hashing, and 16 KiB
// of digests for 1 GiB.
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

// Digest is what is known of content.
type Digest struct {
	Size   int64 // bytes
	Blocks []Sum // as many as the size has
}

// Of reads size bytes, and ends with an error if there are fewer or more. What it reads it also writes to the
// others, for instance to a checksum of the store's. It looks at the context before each block.
func Of(ctx context.Context, content io.Reader, size int64, others ...io.Writer) (Digest, error) {
	d := Digest{Size: size}
	buffer := make([]byte, min(Block, size))
	for left := size; left > 0; left -= Block {
		if ctx.Err() != nil {
			return Digest{}, context.Cause(ctx)
		}
		block := buffer[:min(Block, left)]
		if _, err := io.ReadFull(content, block); err != nil {
			return Digest{}, fmt.Errorf("reading block %d of %d bytes of content: %w", len(d.Blocks), size, err)
		}
		d.Blocks = append(d.Blocks, OfBlock(block))
		for _, w := range others {
			if _, err := w.Write(block); err != nil {
				return Digest{}, err
			}
		}
	}
	switch n, err := io.ReadFull(content, make([]byte, 1)); {
	case n > 0:
		return Digest{}, fmt.Errorf("content is longer than %d bytes", size)
	case err != io.EOF:
		return Digest{}, fmt.Errorf("reading the end of %d bytes of content: %w", size, err)
	}
	return d, nil
}

// Differs tells which block is the first that another digest of the same content has otherwise. It is 0 for content of
// another size.
func (d Digest) Differs(other Digest) (block int, differs bool) {
	if d.Size != other.Size || len(d.Blocks) != len(other.Blocks) {
		return 0, true
	}
	for i := range d.Blocks {
		if d.Blocks[i] != other.Blocks[i] {
			return i, true
		}
	}
	return 0, false
}

// magic begins a stored digest; its last byte is the format's version.
const magic = "HSDIGST\x01"

// headSize is that of magic and size.
const headSize = len(magic) + 8

// Append appends what Parse reads: magic, size, digests of the blocks, and the root, which shows a torn write.
func (d Digest) Append(to []byte) []byte {
	begin := len(to)
	to = slices.Grow(to, headSize+sumSize*(len(d.Blocks)+1))
	to = binary.BigEndian.AppendUint64(append(to, magic...), uint64(d.Size))
	for i := range d.Blocks {
		to = append(to, d.Blocks[i][:]...)
	}
	root := OfBlock(to[begin:])
	return append(to, root[:]...)
}

// Root names the content: the digest of its size and of those of its blocks. Contents with the same root are the same.
func (d Digest) Root() (root Sum) {
	stored := d.Append(nil)
	copy(root[:], stored[len(stored)-sumSize:])
	return root
}

// Parse reads what Append has written, and nothing else.
func Parse(stored []byte) (Digest, error) {
	if len(stored) < headSize+sumSize || !bytes.HasPrefix(stored, []byte(magic)) {
		return Digest{}, errors.New("no digest of a known format")
	}
	end := len(stored) - sumSize
	if OfBlock(stored[:end]) != Sum(stored[end:]) {
		return Digest{}, errors.New("the digest is damaged")
	}
	d := Digest{Size: int64(binary.BigEndian.Uint64(stored[len(magic):]))}
	sums := stored[headSize:end]
	if d.Size < 0 || len(sums)%sumSize != 0 || blocks(d.Size) != int64(len(sums)/sumSize) {
		return Digest{}, fmt.Errorf("a digest of %d bytes of content has %d bytes", d.Size, len(stored))
	}
	for sum := range slices.Chunk(sums, sumSize) {
		d.Blocks = append(d.Blocks, Sum(sum))
	}
	return d, nil
}

// blocks is how many blocks content has.
func blocks(size int64) int64 {
	n := size / Block
	if size%Block > 0 {
		n++
	}
	return n
}
