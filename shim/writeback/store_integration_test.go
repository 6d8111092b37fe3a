//go:build integration

package writeback

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A real store has what was written, as it was written: also nothing, odd keys, checksums and metadata.
func TestARealStoreHasIt(t *testing.T) {
	source, err := sourceAt(startStore(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	dir := t.TempDir()
	w := openOn(dir, "a", source, t.Output())
	defer w.Close()
	sum := func(b []byte) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)))
	}
	contents := map[string]string{"k": "hello", "empty": "", "a b/ü+%20&?=#": "odd", "large": strings.Repeat("0123456789abcdef", 1<<19)}
	for key, content := range contents {
		o := Object{Key: Key{"s", bucketName, key}, Function: "ns/f", Content: content,
			Header: http.Header{"X-Amz-Meta-Camera": {"7"}, "Content-Type": {"text/x"}, "X-Amz-Checksum-Crc32": {sum([]byte(content))}}}
		if err := w.Write(t.Context(), o); err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		pending, err := Pending(t.Context(), source, bucketName, key)
		if err != nil || len(pending) > 1 || len(pending) == 1 && pending[0].Key != key {
			t.Errorf("%q: %+v, %v", key, pending, err)
		}
		if err := w.AwaitPrefix(t.Context(), Key{"s", bucketName, key}); err != nil {
			t.Fatal(err)
		}
		a, err := bucket{source, bucketName}.small(t.Context(), http.MethodGet, key, url.Values{}, http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}, nil)
		h := a.header
		if err != nil || len(a.body) != min(len(content), answerMost) || h.Get("Etag") != o.Tag() || h.Get("X-Amz-Meta-Camera") != "7" ||
			h.Get("Content-Type") != "text/x" || h.Get("X-Amz-Checksum-Crc32") != sum([]byte(content)) {
			t.Errorf("%q: %v, %d bytes, %v", key, err, len(a.body), h)
		}
	}
}

// Of many that put a marker at once, one has it; one that removes another's does not.
func TestMarkersOfARealStore(t *testing.T) {
	source, err := sourceAt(startStore(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	b := bucket{source, bucketName}
	if err := b.probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		var mu sync.Mutex
		var have []Marker
		var putting sync.WaitGroup
		for i := range 16 {
			putting.Go(func() {
				m := Marker{ID: string(rune('a' + i)), Key: "k"}
				tag, a, err := b.mark(t.Context(), m, "")
				mu.Lock()
				defer mu.Unlock()
				if m.tag = tag; err == nil {
					have = append(have, m)
				} else if a.status != http.StatusPreconditionFailed && a.status != http.StatusConflict {
					t.Error(err)
				}
			})
		}
		putting.Wait()
		if len(have) != 1 {
			t.Fatalf("%d have the marker", len(have))
		}
		next := have[0]
		next.Upload = "another"
		tag, _, err := b.mark(t.Context(), next, have[0].tag)
		if removed, failed := b.unmark(t.Context(), have[0]); removed || err != nil || failed != nil {
			t.Errorf("a marker that was replaced is removed by its earlier tag: %v", errors.Join(err, failed))
		}
		if next.tag = tag; err == nil {
			_, err = b.unmark(t.Context(), next)
		}
		if m, failed := b.marked(t.Context(), "k"); m != nil || failed != nil || err != nil {
			t.Errorf("%+v, %v", m, errors.Join(err, failed))
		}
	}
}

// A real store says how old a try is.
func TestOldTriesOfARealStoreGo(t *testing.T) {
	address, data := startStoreIn(t)
	source, err := sourceAt(address, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	b := bucket{source, bucketName}
	for _, key := range []string{tries + "old", tries + "new"} {
		if a, err := b.small(t.Context(), http.MethodPut, key, nil, nil, []byte("x")); err != nil || !a.ok() {
			t.Fatal(a.status, err)
		}
	}
	before := time.Now().Add(-tryAge - time.Minute)
	if err := os.Chtimes(filepath.Join(data, bucketName, tries, "old"), before, before); err != nil {
		t.Fatal(err)
	}
	if err := b.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{tries + "old": false, tries + "new": true} {
		if header, err := b.head(t.Context(), key); err != nil || (header != nil) != want {
			t.Errorf("%s is there: %v, %v", key, header != nil, err)
		}
	}
}
