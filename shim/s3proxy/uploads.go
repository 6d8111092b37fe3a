package s3proxy

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const (
	// uploadsMost is how many uploads in parts the node follows for one sandbox. Of further ones it takes no copy.
	uploadsMost = 64
	// uploadAge is how long an upload is followed to which no part comes: many times what a part takes.
	uploadAge = time.Hour
	// resultMost is how much of an answer is looked at, in bytes: the answer to a completed upload has a few hundred, and
	// spaces before that, by which S3 keeps the connection.
	resultMost = 1 << 20
)

// uploads are the objects that programs store in parts, of which the node has copies.
type uploads struct {
	mu sync.Mutex
	of map[uploadKey]*upload
}

type uploadKey struct{ sandbox, bucket, key, id string }

// upload has the parts that the store has.
type upload struct {
	parts map[int]part
	last  time.Time
}

type part struct {
	tag     string
	size    int64
	content *objects.Deposit
}

// upload is the key of the one that a request is of.
func (h *handler) upload(r *request) uploadKey {
	return uploadKey{h.sandbox.id, r.Bucket, r.Key, r.query.Get("uploadId")}
}

// add adds a part, in place of an earlier one of its number. It is false if there are too many uploads.
func (u *uploads) add(k uploadKey, number int, p part) bool {
	u.forgetAll(func(_ uploadKey, up *upload) bool { return time.Since(up.last) > uploadAge })
	u.mu.Lock()
	defer u.mu.Unlock()
	up := u.of[k]
	if up == nil {
		of := 0
		for other := range u.of {
			if other.sandbox == k.sandbox {
				of++
			}
		}
		if of >= uploadsMost {
			return false
		}
		if u.of == nil {
			u.of = map[uploadKey]*upload{}
		}
		up = &upload{parts: map[int]part{}}
		u.of[k] = up
	}
	if before, twice := up.parts[number]; twice {
		before.content.Abort()
	}
	up.parts[number], up.last = p, time.Now()
	return true
}

// take takes an upload out; nil: the node does not follow it.
func (u *uploads) take(k uploadKey) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	up := u.of[k]
	delete(u.of, k)
	return up
}

func (u *uploads) forget(k uploadKey) { u.take(k).abort() }

// forgetAll lets go of uploads.
func (u *uploads) forgetAll(which func(uploadKey, *upload) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, up := range u.of {
		if which(k, up) {
			delete(u.of, k)
			up.abort()
		}
	}
}

func (up *upload) abort() {
	if up == nil {
		return
	}
	for _, p := range up.parts {
		p.content.Abort()
	}
}

// part passes on a part of an object, and takes a copy.
func (h *handler) part(w http.ResponseWriter, r *request) (answer, error) {
	number, err := strconv.Atoi(r.query.Get("partNumber"))
	body := &payload{Payload: r.signed.Body(r.Body)}
	if err == nil {
		body.deposit = h.deposit(r, r.signed.DecodedLength)
	}
	return h.passPayload(w, r, body, func(res *http.Response, ok bool) {
		tag := ""
		if ok {
			tag = res.Header.Get("Etag")
		}
		var copied *objects.Deposit
		if tag != "" {
			copied = body.take(r.signed.DecodedLength)
		}
		if copied == nil {
			body.abort()
			return
		}
		if p := (part{tag, r.signed.DecodedLength, copied}); !h.server.uploads.add(h.upload(r), number, p) {
			p.content.Abort()
		}
	})
}

// complete passes on the end of an upload. The node puts its copies of the parts together meanwhile.
func (h *handler) complete(w http.ResponseWriter, r *request) (answer, error) {
	body, err := r.small()
	if err != nil {
		return answer{}, err
	}
	up := h.server.uploads.take(h.upload(r))
	var joining sync.WaitGroup
	var whole *objects.Deposit
	joining.Go(func() {
		defer up.abort()
		whole = h.join(r, up, body)
	})
	said := &beginning{ResponseWriter: w, most: resultMost}
	a, err := h.passBytes(said, r, body, func(*http.Response, bool) {})
	var result struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	joining.Wait()
	tag := ""
	if err == nil && xml.Unmarshal(said.start.Bytes(), &result) == nil && result.ETag != "" { // else it is an error after all
		tag = strconv.Quote(strings.Trim(result.ETag, `"`))
	}
	switch {
	case whole == nil:
	case tag == "":
		whole.Abort()
	case whole.Commit(source.Object{Version: tag}) == nil:
		h.describeLater(r, tag)
		return a, nil
	}
	h.changed(r, r.Key)
	return a, err
}

// join makes one object of the parts that the end of an upload names; nil: the node does not have all of them.
func (h *handler) join(r *request, up *upload, end []byte) *objects.Deposit {
	var list struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if up == nil || xml.Unmarshal(end, &list) != nil || len(list.Part) == 0 {
		return nil
	}
	var size int64
	for _, p := range list.Part {
		own, has := up.parts[p.PartNumber]
		if !has || !tagIn(p.ETag, own.tag) {
			return nil
		}
		size += own.size
	}
	whole := h.deposit(r, size)
	if whole == nil {
		return nil
	}
	room, leave := h.server.room(r.function)
	defer leave()
	at := int64(0)
	for _, p := range list.Part {
		own := up.parts[p.PartNumber]
		if err := own.copyTo(r.Context(), whole, at, room); err != nil {
			h.server.config.Log.Debug("the node takes no copy of an object", "instance", h.sandbox.id, "error", err)
			whole.Abort()
			return nil
		}
		at += own.size
	}
	return whole
}

func (p part) copyTo(ctx context.Context, whole *objects.Deposit, at int64, room []byte) error {
	from := p.content.NewReader(ctx)
	defer from.Close() // it was only read from
	n, err := io.CopyBuffer(struct{ io.Writer }{io.NewOffsetWriter(whole, at)}, io.LimitReader(from, p.size), room)
	if err == nil && n != p.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("joining parts: %w", err)
	}
	return nil
}

// beginning keeps the beginning of an answer.
type beginning struct {
	http.ResponseWriter
	most  int
	start bytes.Buffer
}

// Write implements http.ResponseWriter.
func (b *beginning) Write(p []byte) (int, error) {
	b.start.Write(p[:min(len(p), b.most-b.start.Len())])
	return b.ResponseWriter.Write(p)
}
