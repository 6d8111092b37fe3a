package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// object is one object, as ranged.Fetcher reads it.
type object struct {
	*Source
	ref source.Reference
	// whole says that it has to be read as one stream: its server has no ranges, or gives
	// no version that ranges could be known by.
	whole atomic.Bool
}

// Open implements ranged.Object. A server without ranges answers with the whole object: what
// has been read of it before is skipped.
func (o *object) Open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	ranges := ""
	if !o.whole.Load() {
		ranges = fmt.Sprintf("bytes=%d-%d", at, end-1)
	}
	got, err := o.open(ctx, ranges, at, end, known)
	if errors.Is(err, errOneStream) && !o.whole.Swap(true) {
		return o.open(ctx, "", at, end, known)
	}
	return got, err
}

// errOneStream is an answer by which the object has to be asked for without a range: it is
// empty, or has no version that ranges could be known by.
var errOneStream = errors.New("it has no ranges")

func (o *object) open(ctx context.Context, ranges string, at, end int64, known *source.Object) (ranged.Answer, error) {
	answer, err := o.do(ctx, http.MethodGet, ranges, known)
	if err != nil {
		return ranged.Answer{}, err
	}
	got, err := o.read(answer, at, end, known == nil)
	if err != nil {
		// Closing cannot make it worse.
		_ = answer.Body.Close()
	}
	return got, err
}

// read makes sense of an answer without an error.
func (o *object) read(answer *http.Response, at, end int64, first bool) (ranged.Answer, error) {
	object, err := o.describe(answer)
	if err != nil {
		return ranged.Answer{}, err
	}
	if answer.StatusCode == http.StatusOK {
		if first {
			o.whole.Store(true)
		}
		return ranged.Answer{Object: object, Body: answer.Body, Whole: true}, nil
	}
	said := answer.Header.Get("Content-Range")
	if first && strings.HasSuffix(said, "/*") { // of an unknown size
		return ranged.Answer{}, errOneStream
	}
	if object.Size, err = ranged.SizeIn(said, at, end); err != nil {
		return ranged.Answer{}, source.Unavailable(o.config.Store, err.Error())
	}
	if first && object.Version == "" && object.Size > end {
		return ranged.Answer{}, errOneStream
	}
	return ranged.Answer{Object: object, Body: answer.Body, From: at}, nil
}

// describe reads what an answer says of the whole object.
func (o *object) describe(answer *http.Response) (source.Object, error) {
	object := source.Object{Size: answer.ContentLength, ContentType: answer.Header.Get("Content-Type"), Version: version(answer.Header)}
	// Bytes that are encoded on the way have another length, and no version of their own.
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return source.Object{}, source.Unavailable(o.config.Store, fmt.Sprintf("it encodes the object (%.20q), which was not asked for", coding))
	}
	// A body that ends with its connection looks whole wherever that breaks.
	if answer.Request.Method == http.MethodGet && object.Size < 0 && len(answer.TransferEncoding) == 0 {
		return source.Object{}, source.Unavailable(o.config.Store, "it tells neither the object's length nor where it ends")
	}
	return object, nil
}

// version is what tells one version of an object from another, empty if the server says
// nothing that does: a strong entity tag, or a date of change that no other change can have
// had (RFC 9110, sections 8.8.2.2 and 8.8.3).
func version(h http.Header) string {
	if tag := h.Get("ETag"); isTag(tag) {
		return tag
	}
	changed, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return ""
	}
	if now, err := http.ParseTime(h.Get("Date")); err != nil || now.Sub(changed) < time.Second {
		return ""
	}
	return h.Get("Last-Modified")
}

// isTag reports whether a validator is a strong entity tag.
func isTag(s string) bool { return len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' }

// Stat implements ranged.Object.
func (o *object) Stat(ctx context.Context) (source.Object, error) {
	answer, err := o.do(ctx, http.MethodHead, "", nil)
	if err != nil {
		return source.Object{}, err
	}
	_ = answer.Body.Close() // It has none.
	return o.describe(answer)
}

// do sends a request and returns its answer, if that is a good one. known has the server
// refuse another version, or answer with the whole of it.
func (o *object) do(ctx context.Context, method, ranges string, known *source.Object) (*http.Response, error) {
	// Path is encoded as a whole: in it "?" and "%" are letters like any other.
	u := url.URL{Scheme: o.ref.Scheme, Host: o.ref.Bucket, Path: "/" + o.ref.Key}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, source.Because(source.Unavailable(o.config.Store, "it cannot be asked"), err)
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "headstart")
	if ranges != "" {
		r.Header.Set("Range", ranges)
	}
	switch {
	case known == nil || known.Version == "":
	case isTag(known.Version):
		r.Header.Set("If-Match", known.Version)
	case ranges != "":
		// A date. More servers know this than If-Unmodified-Since.
		r.Header.Set("If-Range", known.Version)
	}
	if err := o.authorize(r); err != nil {
		return nil, source.Because(source.Forbidden(o.config.Store, "its credentials cannot be read"), err)
	}
	// The transport, and not a client: it follows no redirect, which would lead away from
	// the hosts that the operator allows.
	answer, err := o.transport.RoundTrip(r)
	if err != nil {
		return nil, o.broken(err)
	}
	if err := o.refusal(answer.StatusCode, ranges != "", known != nil); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

func (o *object) authorize(r *http.Request) error {
	if o.config.Credentials == nil {
		return nil
	}
	s, err := o.config.Credentials(r.Context())
	switch {
	case err != nil:
		return err
	case !usable(s):
		return errSecret
	case s.Get(keyToken) != "":
		r.Header.Set("Authorization", "Bearer "+s.Get(keyToken))
	default:
		r.SetBasicAuth(s.Get(keyUsername), s.Get(keyPassword))
	}
	return nil
}
