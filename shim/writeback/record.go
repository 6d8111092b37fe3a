package writeback

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// Key names an object of a store.
type Key struct{ Store, Bucket, Key string }

// record is of one write.
type record struct {
	ID string
	// Function is in whose name it is.
	Function string
	Key
	// Server is the store's, as it was then.
	Server string
	// Header is what the store is told of the object.
	Header http.Header `json:",omitempty"`
	Size   int64
	// MD5 is the content's.
	MD5   []byte
	Since time.Time
	// Abandoned: the write was not acknowledged, and is not uploaded. Its marker may still come.
	Abandoned bool `json:",omitempty"`
}

// magic begins a record. Its digit is the format's version; fields may be added to a version.
const magic = "headstart write 1\n"

const (
	idSize  = 16
	md5Size = 16
)

// bytes is what parse reads. It ends with a digest.
func (r record) bytes() ([]byte, error) {
	for _, s := range []string{r.Function, r.Store, r.Bucket, r.Key.Key} {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("noting a write: %.40q is not UTF-8", s)
		}
	}
	fields, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("noting a write: %w", err)
	}
	b := append([]byte(magic), fields...)
	sum := digest.OfBlock(b)
	return append(b, sum[:]...), nil
}

// parse reads what bytes has made, and nothing else.
func parse(b []byte) (r record, err error) {
	end := len(b) - len(digest.Sum{})
	if end < len(magic) || !bytes.HasPrefix(b, []byte(magic)) {
		return r, errors.New("no write of a known format")
	}
	if digest.OfBlock(b[:end]) != digest.Sum(b[end:]) {
		return r, errors.New("the record of a write is damaged")
	}
	if err := json.Unmarshal(b[len(magic):end], &r); err != nil {
		return r, fmt.Errorf("reading the record of a write: %w", err)
	}
	if !isID(r.ID) || r.Size < 0 || len(r.MD5) != md5Size || r.Key.Key == "" || r.Bucket == "" {
		return r, fmt.Errorf("the record of write %.40q is of no object", r.ID)
	}
	return r, nil
}

// isID tells whether a text can be a write's.
func isID(s string) bool {
	id, err := hex.DecodeString(s)
	return err == nil && len(id) == idSize && strings.ToLower(s) == s
}
