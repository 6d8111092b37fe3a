package sdks

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"iter"
	"math/rand/v2"
	"strings"
)

// sizes are the contents that objects get, by name.
var sizes = map[string]int{"empty": 0, "1KiB": 1 << 10, "v2": 1 << 10, "5MiB": 5 << 20, "20MiB": 20 << 20}

// content is the same in each run.
func content(name string) []byte {
	data := make([]byte, sizes[name])
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(data) // never fails
	return data
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// behind replaces the entity tags of contents that were uploaded as one part by those that they have otherwise.
var behind = func() *strings.Replacer {
	var tags []string
	for name := range sizes {
		sum := md5.Sum(content(name))
		tags = append(tags, fmt.Sprintf("%x-1", md5.Sum(sum[:])), fmt.Sprintf("%x", sum))
	}
	return strings.NewReplacer(tags...)
}()

// object is what is known of an object that was stored by one request.
func object(name string) M {
	data := content(name)
	return M{"sha256": digest(data), "ContentLength": len(data), "ETag": etag(data)}
}

// head is the part of it that HeadObject has.
func head(name string) M {
	o := object(name)
	delete(o, "sha256")
	return o
}

// ok is any answer that is no error.
var ok = M{}

// sumOf is a checksum as S3 writes it.
func sumOf(h hash.Hash, name string) string {
	_, _ = h.Write(content(name)) // never fails
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// checksums are those of a content, by the parameters that give them, in the same order each time.
func checksums(name string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		_ = yield("ChecksumCRC32", sumOf(crc32.NewIEEE(), name)) &&
			yield("ChecksumCRC32C", sumOf(crc32.New(crc32.MakeTable(crc32.Castagnoli)), name)) &&
			yield("ChecksumCRC64NVME", sumOf(crc64.New(crc64.MakeTable(nvme)), name)) &&
			yield("ChecksumSHA1", sumOf(sha1.New(), name)) && yield("ChecksumSHA256", sumOf(sha256.New(), name))
	}
}

// nvme is NVMe's polynomial, reversed as crc64 has it.
const nvme = 0x9a6c9329ac4bc9b5
