package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"strings"

	"github.com/minio/crc64nvme"
)

// Checksum is what a store says of an object's whole content.
type Checksum struct {
	algorithm string
	want      []byte
}

// algorithms are those of S3 that are worth computing beside BLAKE3, the cheapest first. SHA-1 is left out, and so is
// MD5, which an entity tag may be: it takes six times as long as BLAKE3, and the tag of an object that is encrypted
// with a key of KMS looks like one and is none.
var algorithms = []struct {
	name string
	new  func() hash.Hash
}{
	{"crc64nvme", func() hash.Hash { return crc64nvme.New() }},
	{"crc32c", func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
	{"crc32", func() hash.Hash { return crc32.NewIEEE() }},
	{"sha256", sha256.New},
}

// FromStore returns the cheapest of the checksums that an S3 store gives with an object, by their names without
// x-amz-checksum-, in base64: those of HEAD with x-amz-checksum-mode: ENABLED. Those of a part of the content, or of
// its parts' checksums ("...-3"), are left out.
func FromStore(checksums map[string]string, kind string) (c Checksum, ok bool) {
	if strings.EqualFold(kind, "COMPOSITE") {
		return c, false
	}
	for _, a := range algorithms {
		want, err := base64.StdEncoding.DecodeString(checksums[a.name])
		if err == nil && len(want) == a.new().Size() {
			return Checksum{algorithm: a.name, want: want}, true
		}
	}
	return c, false
}

// Algorithm is its name, as S3 has it; empty for none.
func (c Checksum) Algorithm() string { return c.algorithm }

// New returns what the content is written to, or nil for no checksum.
func (c Checksum) New() hash.Hash {
	for _, a := range algorithms {
		if a.name == c.algorithm {
			return a.new()
		}
	}
	return nil
}

// Agrees tells whether what was written is the store's content.
func (c Checksum) Agrees(h hash.Hash) bool { return bytes.Equal(h.Sum(nil), c.want) }
