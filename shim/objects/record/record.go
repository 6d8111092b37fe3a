// Package record is what a node notes of an object beside its content, by which its next daemon knows the object.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// Record is of one version of an object.
type Record struct {
	// Namespace, Store and Reference are the object's key, and Source is the server that it comes from.
	Namespace, Store, Reference, Source string
	// Size is in bytes. The others are as in source.Object.
	Size                 int64
	Version, ContentType string
	Header               http.Header `json:",omitempty"`
	// Asked is when the store was asked, Said how long its answer holds, and Used when the object was used last.
	Asked, Used time.Time
	Said        time.Duration
	// Outside: the content counts for nobody in the buffer, as volumes may have it.
	Outside bool
	// Sums are the digests of the content's blocks; none: nobody has computed them yet.
	Sums []byte
	// Unchecked: the content may not be what Sums say.
	Unchecked bool
}

// magic begins a record. Its digit is the format's version; fields may be added to a version.
const magic = "headstart record 1\n"

// Bytes is what Parse reads. It ends with a digest, which shows a torn write.
func (r Record) Bytes() ([]byte, error) {
	for _, s := range []string{r.Namespace, r.Store, r.Reference, r.Source, r.Version, r.ContentType} {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("noting an object: %.40q is not UTF-8", s)
		}
	}
	fields, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("noting an object: %w", err)
	}
	b := append([]byte(magic), fields...)
	sum := digest.OfBlock(b)
	return append(b, sum[:]...), nil
}

// Parse reads what Bytes has made, and nothing else.
func Parse(b []byte) (r Record, err error) {
	end := len(b) - len(digest.Sum{})
	if end < len(magic) || !bytes.HasPrefix(b, []byte(magic)) {
		return r, errors.New("no record of a known format")
	}
	if digest.OfBlock(b[:end]) != digest.Sum(b[end:]) {
		return r, errors.New("the record is damaged")
	}
	if err := json.Unmarshal(b[len(magic):end], &r); err != nil {
		return r, fmt.Errorf("reading a record: %w", err)
	}
	if r.Size < 0 || len(r.Sums) > 0 && int64(len(r.Sums)) != digest.Length(r.Size) {
		return r, fmt.Errorf("a record of %d bytes of content has %d bytes of digests", r.Size, len(r.Sums))
	}
	return r, nil
}
