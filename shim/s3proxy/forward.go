package s3proxy

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// bodyMost bounds the body of a request that is not an object, in bytes: 10,000 parts of an upload, or 1000 keys to delete.
const bodyMost = 4 << 20

// expectAbove is from how many bytes on a body waits until the store says that it takes it: a store that refuses closes
// its connection, and with more bytes on their way than a connection's buffers have its answer can be lost. Below that
// the way to the store and back is saved.
const expectAbove = 64 << 10

// errorMost is how much of a refusal is looked at, in bytes: S3 says a few hundred.
const errorMost = 64 << 10

// ended is told how the store has answered, nil if it has not: then nobody knows what it has done.
type ended func(answer *http.Response, ok bool)

// hops are headers that are of one connection (RFC 9110, section 7.6.1), or of a signature.
var hops = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Authorization", "X-Amz-Date", "Date", "X-Amz-Security-Token",
	"Traceparent", "Tracestate", "X-Amzn-Trace-Id"}

// unsigned is said of a body whose digest is not known before it has come.
const unsigned = "UNSIGNED-PAYLOAD"

// out is the request as the store gets it.
func (r *request) out(body io.Reader, length int64) (*http.Request, error) {
	u := &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.query.Encode()}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("passing a request on: %w", err)
	}
	out.URL, out.ContentLength = u, length
	out.Header = r.Header.Clone()
	for _, name := range hops {
		out.Header.Del(name)
	}
	switch {
	case length == 0:
		out.Body = http.NoBody
	case length > expectAbove:
		out.Header.Set("Expect", "100-continue")
	}
	if out.Header.Get("X-Amz-Content-Sha256") == "" { // it was signed in its query
		out.Header.Set("X-Amz-Content-Sha256", unsigned)
	}
	return out, nil
}

// pass passes on a request without a body, or with a small one.
func (h *handler) pass(w http.ResponseWriter, r *request, done ended) (answer, error) {
	body, err := r.small()
	if err != nil {
		return answer{}, err
	}
	return h.passBytes(w, r, body, done)
}

func (h *handler) passBytes(w http.ResponseWriter, r *request, body []byte, done ended) (answer, error) {
	out, err := r.out(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return answer{}, err
	}
	if r.chunked() {
		unchunk(out.Header)
		out.Header.Set("X-Amz-Content-Sha256", unsigned)
	}
	return h.relay(w, r, out, done)
}

// small reads a body that is not an object's. What comes is what was signed.
func (r *request) small() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.signed.Body(r.Body), bodyMost+1))
	if err == nil && len(b) > bodyMost {
		err = refuse(http.StatusBadRequest, "MaxMessageLengthExceeded", fmt.Sprintf("the request's body has more than %d bytes", bodyMost))
	}
	return b, err
}

// relay sends a request to the store and passes on its answer.
func (h *handler) relay(w http.ResponseWriter, r *request, out *http.Request, done ended) (answer, error) {
	if err := h.await(r); err != nil {
		done(nil, false)
		return answer{}, err
	}
	res, err := r.store.Forward(out)
	if err != nil {
		done(nil, false)
		if e, is := errors.AsType[*sigv4.Error](err); is { // the body was not what was signed
			return answer{}, e
		}
		// The cause is for the log: it can name addresses of the operator's, and paths of the node.
		return answer{}, fmt.Errorf("%w: %s", refuse(http.StatusServiceUnavailable, codeUnavailable,
			"the store cannot be reached; the node's log says why"), reason(err))
	}
	defer res.Body.Close()
	ok := res.StatusCode < http.StatusMultipleChoices
	done(res, ok)
	if refusesNode(res) {
		return answer{}, refuse(http.StatusForbidden, "AccessDenied", fmt.Sprintf(
			"the store refuses the credentials that the node has for %q; ask the operator", h.sandbox.Store))
	}
	header(w, res.Header)
	if !ok {
		linger(w, r.Request)
	}
	w.WriteHeader(res.StatusCode)
	room, leave := h.server.room(r.function)
	defer leave()
	n, err := copyBody(w, res.Body, room)
	a := answer{result: resultPassed}
	if !ok {
		a.result = fmt.Sprint(res.StatusCode)
	}
	if r.Name == "GetObject" {
		a.bytes = n
	}
	if err != nil {
		return a, midway{err}
	}
	return a, nil
}

// nodeCodes say what is wrong with a request's credentials: those are the operator's, as the node has verified the
// program's own.
var nodeCodes = []string{"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "XAdminUserNotFound"}

// refusesNode tells whether the store does not take the node's own credentials. The answer can be read as before.
func refusesNode(res *http.Response) bool {
	if res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusNotFound {
		return false
	}
	var start bytes.Buffer
	var said struct{ Code string }
	err := xml.NewDecoder(io.TeeReader(io.LimitReader(res.Body, errorMost), &start)).Decode(&said)
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&start, res.Body), res.Body}
	return err == nil && slices.Contains(nodeCodes, said.Code)
}

// reason is an error's cause without the URL, which has a signature if the client's had one.
func reason(err error) string {
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err.Error()
	}
	return err.Error()
}

// header passes on what the store says.
func header(w http.ResponseWriter, from http.Header) {
	for name, values := range from {
		if name == "Date" || !slices.Contains(hops, name) { // by the date SDKs set their clock
			w.Header()[spelled(name)] = values
		}
	}
}

// spelled is a header's name as S3 writes it. Of metadata boto3 makes names of its own, in which the case counts.
func spelled(name string) string {
	switch {
	case name == "Etag":
		return "ETag"
	case strings.HasPrefix(name, "X-Amz-"):
		return strings.ToLower(name)
	}
	return name
}

// unchunk has a header say nothing of aws-chunked any more.
func unchunk(h http.Header) {
	h.Del("X-Amz-Decoded-Content-Length")
	h.Del("X-Amz-Trailer")
	var left []string
	for _, e := range strings.Split(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "aws-chunked") {
			left = append(left, e)
		}
	}
	h.Del("Content-Encoding")
	if len(left) > 0 {
		h.Set("Content-Encoding", strings.Join(left, ","))
	}
}

// listBuckets answers with those buckets that functions may use: the store would name all of the operator's.
func (h *handler) listBuckets(w http.ResponseWriter, r *request) error {
	type bucket struct {
		Name         string
		CreationDate string
	}
	list := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
		Owner   struct{ ID string }
		Buckets []bucket `xml:"Buckets>Bucket"`
	}{}
	list.Owner.ID = h.sandbox.namespace
	for _, b := range r.store.Buckets() {
		if !strings.HasPrefix(b, r.query.Get("prefix")) {
			continue
		}
		list.Buckets = append(list.Buckets, bucket{b, time.Unix(0, 0).UTC().Format(time.RFC3339)}) // when is not known
	}
	body, err := xml.Marshal(list)
	if err != nil {
		return fmt.Errorf("listing buckets: %w", err)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", requestID())
	_, _ = w.Write(append([]byte(xml.Header), body...)) // nobody is left to tell
	return nil
}

// deleteMany passes on a request that names many objects.
func (h *handler) deleteMany(w http.ResponseWriter, r *request) (answer, error) {
	body, err := r.small()
	if err != nil {
		return answer{}, err
	}
	var list struct {
		Object []struct{ Key, VersionId []string } // each of which the store may take
	}
	var keys []string
	if err := xml.Unmarshal(body, &list); err != nil {
		return answer{}, refuse(http.StatusBadRequest, "MalformedXML", "the request's body is no list of objects to delete")
	}
	for _, o := range list.Object {
		if slices.ContainsFunc(o.Key, leaves) || slices.ContainsFunc(o.VersionId, dotted) {
			return answer{}, refuse(http.StatusBadRequest, "InvalidArgument",
				"a key leads out of the bucket by the segment \"..\", or a version is none of the store's ids")
		}
		if r.rule.Pending && slices.ContainsFunc(o.Key, writeback.IsOwn) {
			return answer{}, refuseOwn
		}
		keys = append(keys, o.Key...)
	}
	if r.rule.Pending {
		if err := r.unsettled(h.server.config.Writes.AwaitAll(r.Context(), h.sandbox.Store, r.Bucket, keys)); err != nil {
			return answer{}, err
		}
	}
	return h.passBytes(w, r, body, func(*http.Response, bool) {
		for _, key := range keys {
			h.changed(r, key)
		}
	})
}
