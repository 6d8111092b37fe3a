package s3proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/byterange"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// limit is the largest object that the node takes part in, in bytes, as the largest input (policy.MaxInputLimit). What
	// is larger than the buffer takes goes from and to the store alone, too.
	limit = 5 << 30

	// roomLarge and roomSmall are how much of an object is passed on at a time, in bytes. More than the large one is no
	// faster on a loopback. roomsLarge is how many answers of a node have the large one, which are 16 MiB.
	roomLarge, roomSmall = 256 << 10, 16 << 10
	roomsLarge           = 64

	// lingerMost is how long an object goes on coming after its last range was read: longer than a program computes between
	// two, and short for one that has only looked at the beginning.
	lingerMost = 10 * time.Second

	// wholeFrom is the least length of a range at an object's beginning that has the node fetch the object whole, in bytes.
	// SDKs that read objects in parts begin so, with parts of 5 MiB and more; who asks for less looks at a file's head.
	wholeFrom = 1 << 20
)

// elsewhere are headers of reads that the store has to answer: keys for objects that the node must not see, and conditions
// that are rare.
var elsewhere = []string{"X-Amz-Server-Side-Encryption-Customer-Algorithm", "X-Amz-Expected-Bucket-Owner",
	"If-Modified-Since", "If-Unmodified-Since", "If-Range", "X-Amz-Object-Attributes"}

// plain tells whether a read is of an object as it is, which the node can answer.
func (r *request) plain() bool {
	for _, name := range elsewhere {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	for name := range r.query {
		if name != "x-id" {
			return false
		}
	}
	return r.reference(r.Key) != ""
}

// get answers with an object that the node has, or fetches. What it cannot answer it asks the store, whose words are
// right in each case.
func (h *handler) get(w http.ResponseWriter, r *request) (answer, error) {
	asked, part := byterange.Parse(r.Header.Get("Range"))
	_, own := h.held(r)
	if !r.plain() || r.Header.Get("Range") != "" && !part || part && !own && !h.holds(r) && !begins(asked) {
		return h.pass(w, r, func(*http.Response, bool) {})
	}
	head := h.asksHead(r)
	input := h.server.config.Objects.Fetch(r.Context(), objects.Request{
		ID: "s3:" + nodeapi.NewRequestID(), Function: r.function, Store: h.sandbox.Store, Reference: r.reference(r.Key),
		Limit: limit,
	})
	sent := false
	defer func() { h.server.leave(input, sent) }()
	about, err := h.describe(r, input, head)
	if reason := problem.ReasonOf(err); r.rule.Pending && (reason == problem.ReasonWritePending || reason == problem.ReasonStoreUnavailable) {
		return answer{}, err // it was waited for
	}
	first, length := int64(0), about.Size
	if err == nil && part && about.Size >= 0 {
		first, length, err = asked.Of(about.Size)
	}
	if err != nil || about.Size < 0 || !r.matches(about) {
		h.server.config.Log.Debug("the store answers a function's request", "instance", h.sandbox.id, "error", err)
		return h.pass(w, r, func(*http.Response, bool) {})
	}
	h.server.foresight.read(r.function, h.sandbox.id, h.sandbox.Store, r.reference(r.Key), about.Size)
	a := answer{result: input.Way()}
	objectHeader(w, about, r.checks() && length == about.Size && !r.unchanged(about))
	if r.unchanged(about) {
		w.WriteHeader(http.StatusNotModified)
		return a, nil
	}
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	status := http.StatusOK
	if part {
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", byterange.ContentRange(first, length, about.Size))
	}
	a.bytes, err = h.send(w, r, input, status, first, length)
	sent = err == nil
	return a, err
}

// leave releases an input. Who has had all that it wanted may want the next range: the object goes on coming for a while.
func (s *Server) leave(input *objects.Input, sent bool) {
	if !sent || !input.Ended().IsZero() {
		input.Release()
		return
	}
	s.background.Go(func() {
		defer input.Release()
		ctx, cancel := context.WithTimeout(s.ctx, lingerMost)
		defer cancel()
		_ = input.Wait(ctx) // how it ends is for those who still read it
	})
}

// begins tells whether a range is how an SDK begins to read a whole object in parts.
func begins(r byterange.Range) bool {
	start, known := r.Start()
	_, last, closed := r.Closed()
	return known && start == 0 && (!closed || last >= wholeFrom-1)
}

// holds tells whether the node has the object of a request, or is getting it.
func (h *handler) holds(r *request) bool {
	return h.server.config.Objects.Has(r.function, h.sandbox.Store, r.Bucket, r.reference(r.Key))
}

// checks tells whether a read asks for checksums.
func (r *request) checks() bool { return strings.EqualFold(r.Header.Get(s3.Checked), checked) }

// checked is the value of s3.Checked.
const checked = "ENABLED"

// knows tells whether a header is all that a read asks for.
func (r *request) knows(header http.Header) bool {
	return header != nil && (!r.checks() || header.Get(s3.Checked) != "")
}

// asksHead begins to ask for the header of the object of a request, unless it is known; the answer is there when what is
// returned is called. So it costs no time beside the question for the object.
func (h *handler) asksHead(r *request) (answer func() (http.Header, error)) {
	about, known := h.server.config.Objects.Present(r.function, h.sandbox.Store, r.Bucket, r.reference(r.Key))
	if r.rule.Pending || !r.checks() || known && r.knows(about.Header) {
		return nil // the store may know another object than the answer is going to be about
	}
	var header http.Header
	var err error
	var asking sync.WaitGroup
	ctx, cancel := context.WithCancel(r.Context())
	asking.Go(func() { header, err = h.headOf(ctx, r) })
	return func() (http.Header, error) {
		defer cancel()
		asking.Wait()
		return header, err
	}
}

// describe returns what is known of an input's object, with its header. The store is asked for that if the node has never
// heard it; head has the answer, nil if it was not asked yet.
func (h *handler) describe(r *request, input *objects.Input, head func() (http.Header, error)) (source.Object, error) {
	if head == nil {
		head = func() (http.Header, error) { return h.headOf(r.Context(), r) }
	} else {
		defer func() { _, _ = head() }() // which has a goroutine
	}
	about, err := input.Object(r.Context())
	if err != nil || r.knows(about.Header) {
		return about, err
	}
	header, err := head()
	if err != nil {
		return about, err
	}
	if tag := header.Get("Etag"); tag != about.Version {
		return about, fmt.Errorf("the object has changed: it is of version %s now, and not %s", tag, about.Version)
	}
	if about.Header = s3.Header(header); about.Header == nil {
		return about, errors.New("the object has a header that is too large to be kept")
	}
	h.server.config.Objects.Describe(r.function, h.sandbox.Store, r.Bucket, r.reference(r.Key), about.Version, about.Header)
	return about, nil
}

// headOf asks the store for the header of the object of a request.
func (h *handler) headOf(ctx context.Context, r *request) (http.Header, error) {
	head := &request{Request: &http.Request{Method: http.MethodHead, URL: r.URL, Header: http.Header{s3.Checked: {checked}}}, store: r.store}
	head.Request = head.WithContext(ctx)
	out, err := head.out(http.NoBody, 0)
	if err != nil {
		return nil, err
	}
	res, err := r.store.Forward(out)
	if err != nil {
		return nil, fmt.Errorf("asking for an object's header: %w", err)
	}
	defer res.Body.Close() // it has none
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for an object's header: %s", res.Status)
	}
	res.Header.Set(s3.Checked, checked)
	return res.Header, nil
}

// head answers with what is known of an object, as long as the store's last answer about it holds, or with what the node says
// of it that has it pending.
func (h *handler) head(w http.ResponseWriter, r *request) (answer, error) {
	if r.plain() && r.Header.Get("Range") == "" {
		about, known := h.held(r)
		if !known {
			about, known = h.server.config.Objects.Known(r.function, h.sandbox.Store, r.Bucket, r.reference(r.Key))
		}
		result := objects.WayHit
		if !known && r.rule.Pending {
			elsewhere, err := h.server.config.Writes.Describe(fair.For(r.Context(), r.function), h.place(r))
			if err != nil {
				return answer{}, r.unsettled(err)
			}
			if r.settled = elsewhere == nil; !r.settled {
				about, known, result = *elsewhere, true, objects.WayPeer
			}
		}
		if known && r.knows(about.Header) && r.matches(about) {
			objectHeader(w, about, r.checks() && !r.unchanged(about))
			if r.unchanged(about) {
				w.WriteHeader(http.StatusNotModified)
			} else {
				w.Header().Set("Content-Length", strconv.FormatInt(about.Size, 10))
			}
			return answer{result: result}, nil
		}
	}
	return h.pass(w, r, func(*http.Response, bool) {})
}

// matches tells whether the object is what If-Match wants. If it is not, the store says so.
func (r *request) matches(about source.Object) bool {
	want := r.Header.Get("If-Match")
	return want == "" || want == "*" || tagIn(want, about.Version)
}

// unchanged tells whether the client has the object already.
func (r *request) unchanged(about source.Object) bool {
	has := r.Header.Get("If-None-Match")
	return has == "*" || has != "" && tagIn(has, about.Version)
}

// tagIn tells whether a list of entity tags has one. Clients of S3 leave out the quotes.
func tagIn(list, tag string) bool {
	for _, t := range strings.Split(list, ",") {
		if strings.Trim(t, ` "`) == strings.Trim(tag, `"`) {
			return true
		}
	}
	return false
}

// objectHeader says what the store says of an object, with its checksums if they are asked for. S3 says these of the whole
// object only.
func objectHeader(w http.ResponseWriter, about source.Object, checksums bool) {
	h := w.Header()
	for name, values := range s3.Header(about.Header) { // also what a neighbour has said
		if checksums || !strings.HasPrefix(name, "X-Amz-Checksum-") {
			h[spelled(name)] = values
		}
	}
	delete(h, spelled(s3.Checked))
	h.Set("Accept-Ranges", "bytes")
	h.Set("X-Amz-Request-Id", requestID())
}

// send answers with a part of an input as it arrives.
func (h *handler) send(w http.ResponseWriter, r *request, input *objects.Input, status int, first, length int64) (int64, error) {
	from, err := input.NewReader(r.Context())
	if err != nil {
		return 0, err
	}
	defer from.Close() // it is only read from
	if first > 0 {
		if _, err := from.(copier).Seek(first, io.SeekStart); err != nil {
			return 0, fmt.Errorf("reading a range: %w", err)
		}
	}
	w.WriteHeader(status)
	n, err := from.(copier).CopyTo(w, length)
	if err != nil {
		return n, midway{err}
	}
	return n, nil
}

// copier is what readers of inputs are.
type copier interface {
	io.Seeker
	CopyTo(w io.Writer, n int64) (int64, error)
}

// room is for what an answer passes on, until leave is called.
func (s *Server) room(function string) (room []byte, leave func()) {
	if leave, _ := s.rooms.Try(function, "answers"); leave != nil {
		return make([]byte, roomLarge), leave
	}
	return make([]byte, roomSmall), func() {}
}

// copyBody is io.CopyBuffer, which would leave the buffer to others that have smaller ones.
func copyBody(w http.ResponseWriter, from io.Reader, room []byte) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, room)
}

// describeTimeout bounds the question for the header of an object that was stored.
const describeTimeout = 10 * time.Second
