package writeback

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

// Store is where objects go. It has to be strongly consistent, and to hold to If-None-Match and If-Match of PUTs, and to
// If-Match of deletions.
type Store interface {
	// Forward sends a request on, signed for the store. Its URL has the path /bucket/key, and neither scheme nor host. It is
	// sent once: a second time, it could be applied late.
	Forward(r *http.Request) (*http.Response, error)
}

const (
	// Own is what the keys of the node's own objects begin with. Nobody else writes them, or lists them.
	Own = ".headstart/"
	// markers is what the keys of markers begin with, and tries what those of tries do.
	markers, tries = Own + "pending/", Own + "probe/"
	// noKey and noBucket are S3's codes of what is not there. Other servers than the store answer 404, too.
	noKey, noBucket = "NoSuchKey", "NoSuchBucket"
	// tooLong is of a key that the store cannot have, for reasons of its own: versitygw's are names of files.
	tooLong = "KeyTooLongError"
	// keyMost is how long a key of S3 may be, in bytes.
	keyMost = 1024
	// answerMost is how much of an answer is read, in bytes: a list of 1000 keys.
	answerMost = 4 << 20
	// slowest is how slow an upload may be, in bytes per second.
	slowest = 64 << 10
	// smallTimeout bounds requests that have no content.
	smallTimeout = 30 * time.Second

	unsigned = "UNSIGNED-PAYLOAD"

	// checksumHeader begins the names of headers with checksums, which are of the whole object.
	checksumHeader           = "X-Amz-Checksum-"
	checksumType, fullObject = "X-Amz-Checksum-Type", "FULL_OBJECT"
)

// IsOwn tells whether a key is one of the node's own, or is for stores that take keys for paths.
func IsOwn(key string) bool {
	clean := path.Clean("/"+key) + "/"
	return strings.HasPrefix(clean, "/"+Own)
}

// Marker says that an object has been written, and is not in the store yet. It is an object of the store, one for each key.
type Marker struct {
	// ID is the write's, and Node has its content.
	ID   string `json:"write"`
	Node string `json:"node"`
	// Upload is the one that the write will complete. No other one may.
	Upload string    `json:"upload"`
	Tag    string    `json:"etag"`
	Size   int64     `json:"size"`
	Since  time.Time `json:"since"`

	// Key is the object's.
	Key string `json:"-"`
	tag string // the marker's own
}

// at is the marker's own key. One of no object is a try.
func (m Marker) at() string {
	if m.Key == "" {
		return tries + m.ID
	}
	return markers + m.Key
}

// answer is the store's to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// refused tells whether the store has said that it has not done what it was asked for. Of other failures nobody knows.
func (a answer) refused() bool {
	return a.status >= 400 && a.status < 500 && a.status != http.StatusRequestTimeout
}

// noUpload tells whether a store may not have an upload any more. When an upload is aborted while a part is on its way,
// versitygw makes it again for that part, and refuses to complete it.
func (a answer) noUpload() bool {
	return a.code() == "NoSuchUpload" || a.status == http.StatusBadRequest
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// code is the S3 error's. Some errors come with status 200.
func (a answer) code() string {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return e.Code
}

func (a answer) err(what string) error {
	return fmt.Errorf("%s: the store answers %d %s", what, a.status, a.code())
}

// bucket is one of a store's.
type bucket struct {
	store Store
	name  string
}

// ask sends a request.
func (b bucket) ask(ctx context.Context, method, key string, query url.Values, header http.Header, body io.Reader, size int64) (answer, error) {
	u := &url.URL{Path: "/" + b.name, RawQuery: query.Encode()}
	if key != "" {
		u.Path += "/" + key
	}
	r, err := http.NewRequestWithContext(ctx, method, "/", body)
	if err != nil {
		return answer{}, err
	}
	r.URL, r.ContentLength = u, size
	if size == 0 {
		r.Body = http.NoBody
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Header.Get("X-Amz-Content-Sha256") == "" {
		r.Header.Set("X-Amz-Content-Sha256", unsigned)
	}
	res, err := b.store.Forward(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	a.body, err = io.ReadAll(io.LimitReader(res.Body, answerMost))
	return a, err
}

// small sends a request with a small body, or none.
func (b bucket) small(ctx context.Context, method, key string, query url.Values, header http.Header, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	sum := sha256.Sum256(body)
	header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	return b.ask(ctx, method, key, query, header, bytes.NewReader(body), int64(len(body)))
}

// errNoUpload says that the store has no such upload any more: it was completed, or aborted.
var errNoUpload = errors.New("the store does not have the upload")

// create begins an upload. What the store does not accept of the object it says here.
func (b bucket) create(ctx context.Context, r record) (upload string, a answer, err error) {
	header := http.Header{}
	for name, values := range r.Header {
		if checksum, is := strings.CutPrefix(name, checksumHeader); is {
			header.Set("X-Amz-Checksum-Algorithm", strings.ToUpper(checksum))
			header.Set(checksumType, fullObject)
			continue
		}
		header[name] = values
	}
	a, err = b.small(ctx, http.MethodPost, r.Key.Key, url.Values{"uploads": {""}}, header, nil)
	if err != nil {
		return "", a, fmt.Errorf("beginning an upload: %w", err)
	}
	var result struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	if !a.ok() || xml.Unmarshal(a.body, &result) != nil || result.UploadID == "" {
		return "", a, a.err("beginning an upload")
	}
	return result.UploadID, a, nil
}

// checksums are a write's, as the part and the whole have them.
func checksums(r record) http.Header {
	h := http.Header{}
	for name, values := range r.Header {
		if strings.HasPrefix(name, checksumHeader) {
			h[name] = values
		}
	}
	return h
}

// part uploads the content, which is one part. The store compares its digest.
func (b bucket) part(ctx context.Context, r record, upload string, content *os.File) (tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout+time.Duration(r.Size/slowest)*time.Second)
	defer cancel()
	header := checksums(r)
	header.Set("Content-Md5", base64.StdEncoding.EncodeToString(r.MD5))
	a, err := b.ask(ctx, http.MethodPut, r.Key.Key, url.Values{"partNumber": {"1"}, "uploadId": {upload}}, header, io.NopCloser(content), r.Size)
	switch {
	case err != nil:
		return "", fmt.Errorf("uploading: %w", err)
	case a.noUpload():
		return "", fmt.Errorf("%w: %w", errNoUpload, a.err("uploading"))
	case !a.ok() || a.header.Get("Etag") == "":
		return "", a.err("uploading")
	}
	return a.header.Get("Etag"), nil
}

// complete has the store have the object.
func (b bucket) complete(ctx context.Context, r record, upload, part string) (tag string, err error) {
	header := checksums(r)
	sums := ""
	for name, values := range header {
		element := "Checksum" + strings.ToUpper(strings.TrimPrefix(name, checksumHeader))
		sums += "<" + element + ">" + html.EscapeString(values[0]) + "</" + element + ">"
	}
	if len(header) > 0 {
		header.Set(checksumType, fullObject)
	}
	body := "<CompleteMultipartUpload><Part><ETag>" + html.EscapeString(strings.Trim(part, `"`)) + "</ETag><PartNumber>1</PartNumber>" +
		sums + "</Part></CompleteMultipartUpload>"
	a, err := b.small(ctx, http.MethodPost, r.Key.Key, url.Values{"uploadId": {upload}}, header, []byte(body))
	var result struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("completing an upload: %w", err)
	case a.noUpload():
		return "", fmt.Errorf("%w: %w", errNoUpload, a.err("completing an upload"))
	case !a.ok() || xml.Unmarshal(a.body, &result) != nil:
		return "", a.err("completing an upload")
	}
	return quoted(result.ETag), nil
}

func quoted(tag string) string { return `"` + strings.Trim(tag, `"`) + `"` }

// abort ends an upload: it can never be completed. One that was completed stays so.
func (b bucket) abort(ctx context.Context, key, upload string) error {
	a, err := b.small(ctx, http.MethodDelete, key, url.Values{"uploadId": {upload}}, nil, nil)
	if err == nil && !a.ok() && a.status != http.StatusNotFound {
		err = a.err("aborting an upload")
	}
	return err
}

// head is what the store says of an object; nil: it has none.
func (b bucket) head(ctx context.Context, key string) (http.Header, error) {
	a, err := b.small(ctx, http.MethodHead, key, nil, nil, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking for an object: %w", err)
	case a.status == http.StatusNotFound:
		return nil, nil
	case !a.ok():
		return nil, a.err("asking for an object")
	}
	return a.header, nil
}

// mark puts a marker, in place of what has the tag; empty: of nothing.
func (b bucket) mark(ctx context.Context, m Marker, instead string) (tag string, a answer, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", a, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "If-Match": {instead}}
	if instead == "" {
		header = http.Header{"Content-Type": {"application/json"}, "If-None-Match": {"*"}}
	}
	a, err = b.small(ctx, http.MethodPut, m.at(), nil, header, body)
	if err != nil {
		return "", a, fmt.Errorf("putting a marker: %w", err)
	}
	if !a.ok() || a.header.Get("Etag") == "" {
		return "", a, a.err("putting a marker")
	}
	return a.header.Get("Etag"), a, nil
}

// errNoBucket says that the store has no such bucket.
var errNoBucket = errors.New("the store does not have the bucket")

// marked returns the marker of a key; nil: there is none.
func (b bucket) marked(ctx context.Context, key string) (*Marker, error) {
	a, err := b.small(ctx, http.MethodGet, markers+key, nil, nil, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking for a marker: %w", err)
	case a.status == http.StatusNotFound && a.code() == noKey, a.status == http.StatusBadRequest && a.code() == tooLong:
		return nil, nil
	case a.status == http.StatusNotFound && a.code() == noBucket:
		return nil, errNoBucket
	case !a.ok():
		return nil, a.err("looking for a marker")
	}
	m := Marker{}
	if err := json.Unmarshal(a.body, &m); err != nil || m.ID == "" {
		return nil, fmt.Errorf("%s%s in bucket %s is no marker; remove it if you do not know it", markers, key, b.name)
	}
	m.Key, m.tag = key, a.header.Get("Etag")
	return &m, nil
}

// unmark removes a marker as it was seen.
func (b bucket) unmark(ctx context.Context, m Marker) (removed bool, err error) {
	a, err := b.small(ctx, http.MethodDelete, m.at(), nil, http.Header{"If-Match": {m.tag}}, nil)
	switch {
	case err != nil:
		return false, fmt.Errorf("removing a marker: %w", err)
	case a.status == http.StatusPreconditionFailed, a.status == http.StatusNotFound && a.code() == noKey:
		return false, nil
	case !a.ok():
		return false, a.err("removing a marker")
	}
	return true, nil
}

// list returns the keys below a prefix that have markers, with the entity tags of these.
func (b bucket) list(ctx context.Context, prefix string) (tags map[string]string, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {markers + prefix}, "encoding-type": {"url"}}
	tags = map[string]string{}
	for {
		a, err := b.small(ctx, http.MethodGet, "", query, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("listing markers: %w", err)
		}
		var page struct {
			XMLName     xml.Name `xml:"ListBucketResult"`
			IsTruncated bool
			Token       string `xml:"NextContinuationToken"`
			Contents    []struct{ Key, ETag string }
		}
		switch {
		case a.status == http.StatusNotFound && a.code() == noBucket:
			return nil, errNoBucket
		case !a.ok() || xml.Unmarshal(a.body, &page) != nil:
			return nil, a.err("listing markers")
		}
		for _, c := range page.Contents {
			key, err := url.QueryUnescape(c.Key)
			if err != nil || !strings.HasPrefix(key, markers) {
				return nil, fmt.Errorf("listing markers: the store lists %.100q", c.Key)
			}
			tags[strings.TrimPrefix(key, markers)] = quoted(c.ETag)
		}
		if !page.IsTruncated {
			return tags, nil
		}
		query.Set("continuation-token", page.Token)
	}
}

// nobodys is the entity tag of no marker.
const nobodys = `"00000000000000000000000000000000"`

// probe tells whether the store holds to the conditions on which markers rest. What it puts is in no key's way.
func (b bucket) probe(ctx context.Context) error {
	m := Marker{ID: rand.Text()}
	tag, _, err := b.mark(ctx, m, "")
	if err != nil {
		return err
	}
	defer func() { _, _ = b.small(ctx, http.MethodDelete, m.at(), nil, nil, nil) }() // it may be gone
	for _, instead := range []string{"", nobodys} {
		if _, a, err := b.mark(ctx, m, instead); a.status != http.StatusPreconditionFailed {
			return errors.Join(errUnconditional, err)
		}
	}
	m.Upload = "another"
	m.tag = nobodys
	wrong, err := b.unmark(ctx, m)
	if err == nil && !wrong {
		m.tag, _, err = b.mark(ctx, m, tag)
	}
	right := false
	if err == nil && !wrong {
		right, err = b.unmark(ctx, m)
	}
	if err != nil || !right {
		return errors.Join(errUnconditional, err)
	}
	return nil
}

// errUnconditional says that a store is none that can be written behind.
var errUnconditional = errors.New("the store does not hold to If-None-Match and If-Match of PUT and If-Match of DELETE")
