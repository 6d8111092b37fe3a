package s3proxy

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// ownKeys are headers of objects whose content the node must not have, or does not know whole.
var ownKeys = []string{"X-Amz-Server-Side-Encryption-Customer-Algorithm", "X-Amz-Write-Offset-Bytes"}

// putThrough passes an object on to the store while the node takes it in as well: who reads it next on this node needs no
// transfer.
func (h *handler) putThrough(w http.ResponseWriter, r *request) (answer, error) {
	body := &payload{Payload: r.signed.Body(r.Body), deposit: h.deposit(r, r.signed.DecodedLength)}
	return h.passPayload(w, r, body, h.stored(r, body))
}

// stored has the node hold a copy of what the store has taken.
func (h *handler) stored(r *request, body *payload) ended {
	return func(res *http.Response, ok bool) {
		tag := ""
		if ok {
			tag = res.Header.Get("Etag")
		}
		if tag != "" && body.commit(source.Object{Size: r.signed.DecodedLength, Version: tag, ContentType: r.Header.Get("Content-Type")}) {
			h.describeLater(r, tag)
			return
		}
		body.abort()
		h.changed(r, r.Key)
	}
}

// passPayload passes on a request whose body is content. It goes on as it comes; the last bytes come once all is
// verified, so that the store gets nothing whole that the program has not signed.
func (h *handler) passPayload(w http.ResponseWriter, r *request, body *payload, done ended) (answer, error) {
	var from io.Reader = body
	length, kind := r.signed.DecodedLength, r.signed.ContentSHA256
	chunks := newChunks(r, body)
	if chunks != nil {
		from, length, kind = chunks, chunks.length(), trailing
	} else if r.chunked() {
		kind = unsigned
	}
	out, err := r.out(from, length)
	if err != nil {
		return answer{}, err
	}
	if r.chunked() {
		unchunk(out.Header)
	}
	if chunks != nil {
		chunks.describe(out.Header)
	}
	out.Header.Set("X-Amz-Content-Sha256", kind)
	a, err := h.relay(w, r, out, done)
	a.bytes = body.read()
	return a, err
}

// payload is content on its way to the store, of which the node may have a copy. A store can answer before it has all of
// it. Then its connection still reads while the answer is passed on.
type payload struct {
	*sigv4.Payload

	mu      sync.Mutex
	deposit *objects.Deposit // nil: the node takes no copy
	at      int64
}

func (p *payload) Read(b []byte) (int, error) {
	n, err := p.Payload.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 && p.deposit != nil {
		if _, failed := p.deposit.WriteAt(b[:n], p.at); failed != nil {
			p.deposit.Abort() // the store has it nonetheless
			p.deposit = nil
		}
	}
	p.at += int64(n)
	return n, err
}

// read is how many bytes have been read.
func (p *payload) read() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *payload) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deposit != nil {
		p.deposit.Abort()
		p.deposit = nil
	}
}

// commit has the node hold what the store has, or is going to have. It is false if the node has no copy.
func (p *payload) commit(about source.Object) bool {
	d := p.take(about.Size)
	return d != nil && d.Commit(about) == nil
}

// take takes the copy over, if it has all of the size: who has it ends it. nil: there is none.
func (p *payload) take(size int64) *objects.Deposit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at != size {
		return nil
	}
	d := p.deposit
	p.deposit = nil
	return d
}

// deposit makes room for a copy of size bytes of what a request stores; nil: the node takes none.
func (h *handler) deposit(r *request, size int64) *objects.Deposit {
	for _, name := range ownKeys {
		if r.Header.Get(name) != "" {
			return nil
		}
	}
	ref := r.reference(r.Key)
	if ref == "" || size > limit {
		return nil
	}
	d, err := h.server.config.Objects.Deposit(r.Context(), objects.Request{
		ID: "s3:" + nodeapi.NewRequestID(), Function: r.function, Store: h.sandbox.Store, Reference: ref, Limit: limit,
	}, size)
	if err != nil {
		h.server.config.Log.Debug("the node takes no copy of an object", "instance", h.sandbox.id, "error", err)
		return nil
	}
	return d
}

// describeLater asks the store for the header of an object that was stored, which the answer to a PUT does not have, so
// that the next read need not wait for it.
func (h *handler) describeLater(r *request, tag string) {
	h.server.background.Go(func() {
		ctx, cancel := context.WithTimeout(h.server.ctx, describeTimeout)
		defer cancel()
		header, err := h.headOf(ctx, r)
		if err == nil && header.Get("Etag") == tag {
			h.server.config.Objects.Describe(r.function, h.sandbox.Store, r.Bucket, r.reference(r.Key), tag, s3.Header(header))
		}
	})
}
