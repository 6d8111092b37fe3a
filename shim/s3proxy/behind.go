package s3proxy

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

const (
	// behindFrom is from how many bytes on an object is written behind. Below that its marker takes as long as the object.
	behindFrom = 64 << 10
	// listMost bounds a list that the node reads, in bytes: 1000 keys of 1 KiB, each with what is said of it.
	listMost = 8 << 20
	// crc64NVME is the polynomial of the NVM Express specification, reversed.
	crc64NVME = 0x9a6c9329ac4bc9b5
)

// refuseOwn keeps programs away from what nodes note in a bucket.
var refuseOwn = refuse(http.StatusForbidden, "AccessDenied",
	"keys that begin with "+writeback.Own+" are the nodes' own in a bucket with write: back; use another key")

// noUpload is what programs are told of an upload of the nodes' own.
var noUpload = refuse(http.StatusNotFound, "NoSuchUpload", "the bucket has no such upload of a program's")

// sums compute the checksums that can be written behind, by the headers that have them.
var sums = map[string]func() hash.Hash{
	"X-Amz-Checksum-Crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"X-Amz-Checksum-Crc32c":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"X-Amz-Checksum-Crc64nvme": func() hash.Hash { return crc64.New(crc64.MakeTable(crc64NVME)) },
}

// ofObject are headers of a PUT that are of the object, or have to be true for it, besides those of Amazon's own.
var ofObject = []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type",
	"Expires", "If-Match", "If-None-Match"}

// ofRequest are Amazon's own that are not of the object.
var ofRequest = []string{"X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Decoded-Content-Length", "X-Amz-Sdk-Checksum-Algorithm",
	"X-Amz-Security-Token", "X-Amz-Trailer", "X-Amz-User-Agent"}

// place is where the object of a request is.
func (h *handler) place(r *request) writeback.Key {
	return writeback.Key{Store: h.sandbox.Store, Bucket: r.Bucket, Key: r.Key}
}

// await waits until the store has what nodes have acknowledged of what a request is about. Of an upload that is a
// node's own, programs are told that there is none.
func (h *handler) await(r *request) error {
	writes, rule := h.server.config.Writes, h.server.config.Rule
	err := error(nil)
	if id := r.query.Get("uploadId"); id != "" && r.rule.Pending {
		switch own, err := writes.OwnUpload(r.Context(), h.place(r), id); {
		case err != nil:
			return r.unsettled(err)
		case own:
			return noUpload
		}
	}
	if r.From != "" && rule(h.sandbox.Store, r.From).Pending {
		err = writes.Await(r.Context(), writeback.Key{Store: h.sandbox.Store, Bucket: r.From, Key: r.FromKey})
	}
	switch {
	case err != nil || !r.rule.Pending || r.settled:
	case slices.Contains([]string{"CreateMultipartUpload", "UploadPart", "UploadPartCopy", "AbortMultipartUpload",
		"ListParts", "ListMultipartUploads"}, r.Name):
		// the object is another one when the upload is completed
	case r.Key != "":
		err = writes.Await(r.Context(), h.place(r))
	case strings.HasPrefix(r.Name, "List"):
		k := h.place(r)
		k.Key = r.query.Get("prefix")
		err = writes.AwaitPrefix(r.Context(), k)
	}
	return r.unsettled(err)
}

// unsettled is what a program is told when the node cannot find out what is written, or has waited for too long.
func (r *request) unsettled(err error) error {
	if err == nil {
		return nil
	}
	if pending, is := errors.AsType[*writeback.PendingError](err); is {
		return refuse(http.StatusServiceUnavailable, codeUnavailable, pending.Error())
	}
	return fmt.Errorf("%w: %w", refuse(http.StatusServiceUnavailable, codeUnavailable,
		"the store does not say whether another node has written "+r.Bucket+"/"+r.Key+", so that what it has may be older; "+
			"send the request again; the node's log says more"), err)
}

// held is what this node has acknowledged of the object of a request, and the store does not have yet.
func (h *handler) held(r *request) (about source.Object, is bool) {
	if !r.rule.Pending {
		return about, false
	}
	held, err := h.server.config.Writes.Held(h.place(r))
	if err != nil || held == nil {
		return about, false
	}
	_ = held.Close() // it was not read from
	return held.Object, true
}

// putBehind acknowledges an object when it is durable on this node. What cannot be written behind goes through.
func (h *handler) putBehind(w http.ResponseWriter, r *request) (answer, error) {
	header := r.described()
	after := http.CanonicalHeaderKey(r.Header.Get("X-Amz-Trailer"))
	if r.signed.DecodedLength < behindFrom || after != "" && sums[after] == nil {
		return h.putThrough(w, r)
	}
	in, err := h.server.config.Writes.Begin(r.Context(), r.function, h.place(r), header, r.signed.DecodedLength)
	switch {
	case errors.Is(err, writeback.ErrThrough):
		h.server.config.Log.Debug("an object is not written behind", "instance", h.sandbox.id, "error", err)
		return h.putThrough(w, r)
	case err != nil:
		return answer{}, r.unsettled(err)
	}
	defer in.Close() // what it has is durable
	body := &payload{Payload: r.signed.Body(r.Body)}
	sum, err := h.receive(r, in, body, header)
	if err != nil {
		return answer{bytes: body.read()}, err
	}
	err = in.Commit(r.Context(), header, sum)
	if errors.Is(err, writeback.ErrThrough) {
		h.server.config.Log.Debug("an object is not written behind", "instance", h.sandbox.id, "error", err)
		return h.putReceived(w, r, in, body, header)
	}
	if err != nil {
		h.changed(r, r.Key)
		return answer{bytes: body.read()}, r.unsettled(err)
	}
	about := in.About()
	h.changed(r, r.Key)
	h.copyLater(r)
	w.Header()[spelled("Etag")] = []string{about.Version}
	for name, values := range header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") {
			w.Header()[spelled(name)] = values
			w.Header()["x-amz-checksum-type"] = []string{"FULL_OBJECT"}
		}
	}
	w.Header()[spelled("X-Amz-Request-Id")] = []string{requestID()}
	w.WriteHeader(http.StatusOK)
	return answer{result: resultBehind, bytes: about.Size}, nil
}

// copyLater has the node's cache have what was written: from the journal's file, which its next reader need not wait for
// then, while the writer waits for one copy alone.
func (h *handler) copyLater(r *request) {
	ref := r.reference(r.Key)
	if ref == "" {
		return
	}
	input := h.server.config.Objects.Fetch(context.WithoutCancel(r.Context()), objects.Request{
		ID: "s3:" + nodeapi.NewRequestID(), Function: r.function, Store: h.sandbox.Store, Reference: ref, Limit: limit,
	})
	h.server.background.Go(func() {
		defer input.Release()
		if err := input.Wait(h.server.ctx); err != nil {
			h.server.config.Log.Debug("the node takes no copy of an object", "instance", h.sandbox.id, "error", err)
		}
	})
}

// described is what a PUT says of its object. A checksum that comes after the content has no value yet.
func (r *request) described() http.Header {
	h := http.Header{}
	for name, values := range r.Header {
		if slices.Contains(ofObject, name) || strings.HasPrefix(name, "X-Amz-") && !slices.Contains(ofRequest, name) {
			h[name] = values
		}
	}
	if r.chunked() {
		unchunk(h)
		if after := http.CanonicalHeaderKey(r.Header.Get("X-Amz-Trailer")); strings.HasPrefix(after, "X-Amz-Checksum-") {
			h[after] = []string{""}
		}
	}
	return h
}

// receive takes the content, and compares it with what the program says of it. A checksum that came after it is put into
// the header.
func (h *handler) receive(r *request, in io.Writer, body *payload, header http.Header) (sum [md5.Size]byte, err error) {
	whole, computed := md5.New(), map[string]hash.Hash{}
	kept := &noting{Writer: in}
	to := []io.Writer{kept, whole}
	for name := range header {
		if sums[name] != nil {
			computed[name] = sums[name]()
			to = append(to, computed[name])
		}
	}
	room, leave := h.server.room(r.function)
	defer leave()
	if _, err := io.CopyBuffer(struct{ io.Writer }{together(to)}, struct{ io.Reader }{body}, room); err != nil {
		if kept.err != nil {
			err = fmt.Errorf("%w: %w", refuse(http.StatusServiceUnavailable, codeUnavailable, "the node's disk fails; its log says why"), err)
		}
		return sum, err
	}
	whole.Sum(sum[:0])
	if said := r.Header.Get("Content-Md5"); said != "" && said != base64.StdEncoding.EncodeToString(sum[:]) {
		return sum, refuse(http.StatusBadRequest, "BadDigest", "the body's MD5 is not that in content-md5")
	}
	for name, of := range computed {
		if header.Get(name) == "" {
			header.Set(name, body.Trailer().Get(name))
		}
		if base64.StdEncoding.EncodeToString(of.Sum(nil)) != header.Get(name) {
			return sum, refuse(http.StatusBadRequest, "BadDigest", "the body's checksum is not that in "+strings.ToLower(name))
		}
	}
	return sum, nil
}

// together are writers that take the same bytes at the same time: a digest takes longer than the disk.
type together []io.Writer

func (t together) Write(b []byte) (int, error) {
	var others errgroup.Group
	for _, w := range t[1:] {
		others.Go(func() error { _, err := w.Write(b); return err })
	}
	n, err := t[0].Write(b)
	return n, errors.Join(err, others.Wait())
}

// noting is a writer that notes whether it has failed.
type noting struct {
	io.Writer
	err error
}

func (n *noting) Write(b []byte) (int, error) {
	var written int
	written, n.err = n.Writer.Write(b)
	return written, n.err
}

// putReceived brings the store an object that the node has taken in, and cannot write behind.
func (h *handler) putReceived(w http.ResponseWriter, r *request, in io.ReaderAt, body *payload, header http.Header) (answer, error) {
	size := r.signed.DecodedLength
	out, err := r.out(io.NewSectionReader(in, 0, size), size)
	if err != nil {
		return answer{}, err
	}
	if r.chunked() {
		unchunk(out.Header)
		out.Header.Set("X-Amz-Content-Sha256", unsigned)
	}
	maps.Copy(out.Header, header)
	a, err := h.relay(w, r, out, h.stored(r, body))
	a.bytes = size
	return a, err
}

// list passes on a list without what the nodes themselves have in the bucket.
func (h *handler) list(w http.ResponseWriter, r *request) (answer, error) {
	if !r.rule.Pending {
		return h.pass(w, r, func(*http.Response, bool) {})
	}
	r.Header.Set("Accept-Encoding", "identity") // it is read here
	return h.pass(w, r, func(res *http.Response, ok bool) {
		if !ok {
			return
		}
		all := res.Body
		b, err := io.ReadAll(io.LimitReader(all, listMost+1))
		if err == nil {
			b, err = hide(b, func(all []writeback.Upload) (map[writeback.Upload]bool, error) {
				return h.server.config.Writes.OwnUploads(r.Context(), h.sandbox.Store, r.Bucket, all)
			})
		}
		if err != nil || len(b) > listMost {
			h.server.config.Log.Warn("the store's list cannot be read", "instance", h.sandbox.id, "error", err)
			b = []byte(xml.Header + "<Error><Code>" + codeInternal + "</Code><Message>the store's list cannot be read</Message></Error>")
			res.StatusCode = http.StatusBadGateway
		}
		res.Header.Set("Content-Length", strconv.Itoa(len(b)))
		res.Header.Del("Content-Encoding")
		res.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(b), all}
	})
}

// edit puts something else in place of a part of a list.
type edit struct {
	from, to int64
	with     string
}

// entry is one of a list.
type entry struct {
	from, to    int64
	own         bool   // by its key, which is one of the nodes' own
	key, upload string // as they are in the list
}

// uploads are what an entry can be of: whether the store has escaped the key is up to the store.
func (e entry) uploads() []writeback.Upload {
	all := []writeback.Upload{{Key: e.key, ID: e.upload}}
	if key, err := url.QueryUnescape(e.key); err == nil && key != e.key {
		all = append(all, writeback.Upload{Key: key, ID: e.upload})
	}
	return all
}

// hide leaves out of a list (ListBucketResult and its like) the entries that are the nodes' own. All else stays as it
// is, also where the next page begins. uploads tells which uploads are the nodes' own.
func hide(list []byte, uploads func([]writeback.Upload) (map[writeback.Upload]bool, error)) ([]byte, error) {
	entries, count, err := entriesOf(list)
	if err != nil {
		return nil, err
	}
	var all []writeback.Upload
	for _, e := range entries {
		if e.upload != "" && !e.own {
			all = append(all, e.uploads()...)
		}
	}
	var own map[writeback.Upload]bool
	if len(all) > 0 {
		if own, err = uploads(all); err != nil {
			return nil, err
		}
	}
	var edits []edit
	for _, e := range entries {
		if e.own || e.upload != "" && slices.ContainsFunc(e.uploads(), func(u writeback.Upload) bool { return own[u] }) {
			edits = append(edits, edit{from: e.from, to: e.to})
		}
	}
	if n, err := strconv.Atoi(count.with); err == nil {
		count.with = strconv.Itoa(n - len(edits))
		edits = append(edits, count)
	}
	slices.SortFunc(edits, func(a, b edit) int { return int(a.from - b.from) })
	var out []byte
	at := int64(0)
	for _, e := range edits {
		out = append(append(out, list[at:e.from]...), e.with...)
		at = e.to
	}
	return append(out, list[at:]...), nil
}

// entriesOf reads a list's entries, and where it says how many there are.
func entriesOf(list []byte) (entries []entry, count edit, err error) {
	var e entry
	var before int64
	var path []string
	for d := xml.NewDecoder(bytes.NewReader(list)); ; before = d.InputOffset() {
		token, err := d.RawToken()
		if err == io.EOF {
			if len(path) > 0 {
				err = io.ErrUnexpectedEOF
			} else {
				err = nil
			}
			return entries, count, err
		}
		if err != nil {
			return nil, count, fmt.Errorf("it is no XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if path = append(path, t.Name.Local); len(path) == 2 {
				e = entry{from: before}
			}
		case xml.CharData:
			switch last := path[max(0, len(path)-1):]; {
			case len(path) == 3 && (last[0] == "Key" || last[0] == "Prefix"):
				key, err := url.QueryUnescape(string(t))
				e.own = e.own || writeback.IsOwn(string(t)) || err == nil && writeback.IsOwn(key)
				e.key += string(t)
			case len(path) == 3 && last[0] == "UploadId":
				e.upload += string(t)
			case len(path) == 2 && last[0] == "KeyCount":
				count = edit{before, d.InputOffset(), string(t)}
			}
		case xml.EndElement:
			if len(path) == 2 && path[1] != "KeyCount" { // which is edited by itself
				e.to = d.InputOffset()
				entries = append(entries, e)
			}
			if len(path) == 0 {
				return nil, count, errors.New("it ends more than it begins")
			}
			path = path[:len(path)-1]
		}
	}
}
