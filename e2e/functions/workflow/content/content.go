// Package content makes what workflows pass on: the same bytes for the same size and seed,
// so that a receiver's digest can be checked by who was not there.
package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
)

// The kinds of contents.
const (
	Noise = "noise"
	Video = "video" // somewhat shorter than it should be: it ends with a whole frame
)

// Make returns a content of that kind.
func Make(kind string, size int64, seed uint64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(size))
	if err := Write(&b, kind, size, seed); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Write writes it.
func Write(w io.Writer, kind string, size int64, seed uint64) error {
	switch kind {
	case Noise:
		_, err := io.CopyN(w, newNoise(seed), size)
		return err
	case Video:
		_, err := mjpeggen.Generate(w, size, seed)
		return err
	}
	return fmt.Errorf("there is no content %q", kind)
}

// Digest returns its SHA-256 in hexadecimal.
func Digest(kind string, size int64, seed uint64) (string, error) {
	h := sha256.New()
	if err := Write(h, kind, size, seed); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func newNoise(seed uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}
