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
	// held is the version that the caller has, empty for none. Only the first part's question has it.
	held string
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
	answer, err := o.do(ctx, ranges, known)
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
	if answer.StatusCode == http.StatusNotModified {
		return ranged.Answer{}, o.unchanged(answer)
	}
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
	object := source.Object{Size: answer.ContentLength, ContentType: answer.Header.Get("Content-Type"),
		Version: version(answer.Header), Fresh: o.fresh(answer.Header)}
	// Bytes that are encoded on the way have another length, and no version of their own.
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return source.Object{}, source.Unavailable(o.config.Store, fmt.Sprintf("it encodes the object (%.20q), which was not asked for", coding))
	}
	// A body that ends with its connection looks whole wherever that breaks.
	if object.Size < 0 && len(answer.TransferEncoding) == 0 {
		return source.Object{}, source.Unavailable(o.config.Store, "it tells neither the object's length nor where it ends")
	}
	return object, nil
}

// tagMost bounds what is remembered of an object, in bytes.
const tagMost = 1 << 10

// version is what tells one version of an object from another, empty if the server says
// nothing that does: a strong entity tag, or a date of change that no other change can have
// had (RFC 9110, sections 8.8.2.2 and 8.8.3).
func version(h http.Header) string {
	if tag := h.Get("ETag"); isTag(tag) && len(tag) <= tagMost {
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

// unchanged is what an answer means that says that the object still is of the version that is held, which it
// may repeat (RFC 9110, section 15.4.5). Of an answer about another one nobody knows what it means, such as of a
// server that takes an older date for the same version: it is asked again, for the object.
func (o *object) unchanged(answer *http.Response) error {
	validator := "Last-Modified"
	if isTag(o.held) {
		validator = "ETag"
	}
	// A date that is not repeated may be a later one: many servers take an older file for the same.
	if said := answer.Header.Get(validator); said != o.held && (said != "" || validator != "ETag") {
		o.held = ""
		return ranged.Again(source.Changed(o.config.Store, o.ref))
	}
	return &source.Unchanged{Fresh: o.fresh(answer.Header)}
}

// do sends a request and returns its answer, if that is a good one. known has the server
// refuse another version, or answer with the whole of it.
func (o *object) do(ctx context.Context, ranges string, known *source.Object) (*http.Response, error) {
	// Path is encoded as a whole: in it "?" and "%" are letters like any other.
	u := url.URL{Scheme: o.ref.Scheme, Host: o.ref.Bucket, Path: "/" + o.ref.Key}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, source.Because(source.Unavailable(o.config.Store, "it cannot be asked"), err)
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "headstart")
	if ranges != "" {
		r.Header.Set("Range", ranges)
	}
	asks := known == nil && o.held != ""
	switch {
	case asks && isTag(o.held):
		r.Header.Set("If-None-Match", o.held)
	case asks:
		r.Header.Set("If-Modified-Since", o.held)
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
	if asks && answer.StatusCode == http.StatusNotModified {
		return answer, nil
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
