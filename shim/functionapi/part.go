package functionapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/shim/byterange"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// part is what of an input a read gets.
type part struct {
	input  sandboxes.Input
	object source.Object
	// partial: it is a range. length is below 0 for all that comes.
	partial       bool
	first, length int64
}

// choose finds out what a read asks for. It waits for as much of the input as is needed to
// say where a range of it ends; on byterange.ErrUnsatisfiable the part has the object.
func choose(ctx context.Context, input sandboxes.Input, r *http.Request) (part, error) {
	object, err := input.Object(ctx)
	p := part{input: input, object: object, length: object.Size}
	if err != nil {
		return p, err
	}
	asked, ok := p.asked(r)
	if !ok {
		return p, nil
	}
	if object.Size < 0 {
		there, err := p.await(ctx, asked)
		if err != nil || there {
			return p, err
		}
	}
	// Without bytes there are no ranges, and clients that always send one want no error for
	// it; without a size, which a complete input has, nobody can say. Both may be ignored.
	if p.object.Size <= 0 {
		return p, nil
	}
	first, length, err := asked.Of(p.object.Size)
	if err != nil {
		return p, err
	}
	p.partial, p.first, p.length = true, first, length
	return p, nil
}

// asked is the one range that the request is for. Ranges mean something for GET only (RFC
// 9110, section 14.2), and with If-Range for the version that it names (section 13.1.5).
func (p part) asked(r *http.Request) (byterange.Range, bool) {
	header := r.Header.Get("Range")
	if r.Method != http.MethodGet || header == "" {
		return byterange.Range{}, false
	}
	if v := r.Header.Get("If-Range"); v != "" && (v != etag(p.object.Version) || strings.HasPrefix(v, "W/")) {
		return byterange.Range{}, false
	}
	return byterange.Parse(header)
}

// await waits, of an input whose size is not known yet, until the range's bytes are there,
// or the size is. There tells that it is the bytes.
func (p *part) await(ctx context.Context, asked byterange.Range) (there bool, err error) {
	if start, end, closed := asked.Closed(); closed {
		last, err := open(ctx, p.input, end)
		if err != nil {
			return false, err
		}
		defer last.Close()
		switch _, err := io.ReadFull(last, make([]byte, 1)); err {
		case nil:
			p.partial, p.first, p.length = true, start, end-start+1
			return true, nil
		case io.EOF: // the input ends before it
		default:
			return false, err
		}
	}
	if err := p.input.Wait(ctx); err != nil {
		return false, err
	}
	p.object, err = p.input.Object(ctx)
	p.length = p.object.Size
	return false, err
}

// head writes the answer's head.
func (p part) head(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "application/octet-stream")
	if p.object.ContentType != "" {
		h.Set("Content-Type", p.object.ContentType)
	}
	if tag := etag(p.object.Version); tag != "" {
		h.Set("ETag", tag)
	}
	if p.length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(p.length, 10))
	}
	if !p.partial {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Range", byterange.ContentRange(p.first, p.length, p.object.Size))
	w.WriteHeader(http.StatusPartialContent)
}

// open returns a reader from an offset on.
func open(ctx context.Context, input sandboxes.Input, at int64) (io.ReadCloser, error) {
	r, err := input.NewReader(ctx)
	if err != nil || at == 0 {
		return r, err
	}
	if s, ok := r.(io.Seeker); ok {
		_, err = s.Seek(at, io.SeekStart)
	} else if _, err = io.CopyN(io.Discard, r, at); err == io.EOF {
		err = nil // and so is what follows
	}
	if err != nil {
		_ = r.Close() // it was only read from
		return nil, err
	}
	return r, nil
}

// etag is an object's version as an entity tag (RFC 9110, section 8.8.3), empty if it is
// none.
func etag(version string) string {
	opaque := strings.TrimPrefix(version, "W/")
	if n := len(opaque); n < 2 || opaque[0] != '"' || opaque[n-1] != '"' {
		return ""
	}
	for _, c := range []byte(opaque[1 : len(opaque)-1]) {
		if c <= ' ' || c == '"' || c == 0x7f {
			return ""
		}
	}
	return version
}
