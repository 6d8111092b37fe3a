package writeback

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// not are headers of objects that cannot be written behind: conditions, which the store has to answer, encryption, with
// which entity tags are of the store's making, locks, and what each request of an upload would have to say.
var not = []string{"If-Match", "If-None-Match", "X-Amz-Server-Side-Encryption", "X-Amz-Object-Lock-",
	"X-Amz-Write-Offset-Bytes", "X-Amz-Expected-Bucket-Owner", "X-Amz-Request-Payer"}

// whole are the checksums that an upload in parts has of the whole object, as a PUT does.
var whole = []string{checksumHeader + "Crc32", checksumHeader + "Crc32c", checksumHeader + "Crc64nvme"}

// fitsMarker tells whether a key can have a marker.
func fitsMarker(key string) bool { return key != "" && len(markers)+len(key) <= keyMost }

// fits tells why an object cannot be written behind.
func fits(k Key, header http.Header) error {
	if !fitsMarker(k.Key) || IsOwn(k.Key) {
		return fmt.Errorf("%w: the key has no marker", ErrThrough)
	}
	of := 0
	for name, values := range header {
		if slices.ContainsFunc(not, func(n string) bool { return strings.HasPrefix(name, n) }) ||
			strings.HasPrefix(name, checksumHeader) && !slices.Contains(whole, name) ||
			!utf8.ValidString(strings.Join(values, "")) {
			return fmt.Errorf("%w: the object has the header %s", ErrThrough, name)
		}
		if strings.HasPrefix(name, checksumHeader) {
			of += len(values)
		}
	}
	if of > 1 {
		return fmt.Errorf("%w: the object has several checksums", ErrThrough)
	}
	return nil
}

// Tag is the entity tag that an object with this digest is going to have: that of an upload of one part.
func Tag(sum [md5.Size]byte) string { return tagOf(sum[:]) }

func tagOf(sum []byte) string {
	parts := md5.Sum(sum)
	return `"` + hex.EncodeToString(parts[:]) + `-1"`
}

// Incoming is a write whose content is on its way. Its File is where that goes; it can be read until Close, which ends it.
type Incoming struct {
	*os.File
	writer *Writer
	bucket bucket
	write  *write

	answer answer // of the store to the beginning of the upload
	err    error
	ended  bool
	about  source.Object
}

// Begin makes room for a write in the name of a function, and has the store expect it: the two take as long as the longer
// one. header is what the store is told of the object, with names in their canonical form. The values of checksums may
// come with Commit. With ErrThrough the write cannot be behind.
func (w *Writer) Begin(ctx context.Context, function string, k Key, header http.Header, size int64) (_ *Incoming, err error) {
	if err := fits(k, header); err != nil {
		return nil, err
	}
	if !w.enter() {
		return nil, fmt.Errorf("%w: the journal is another daemon's, or the node ends", ErrThrough)
	}
	defer func() {
		if err != nil {
			w.running.Done()
		}
	}()
	s, server, err := w.config.Store(k.Store)
	if err != nil {
		return nil, err
	}
	b := bucket{s, k.Bucket}
	if err := w.probe(b, k); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrThrough, err)
	}
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails
	e := &write{done: make(chan struct{}), created: make(chan struct{}),
		record: record{ID: hex.EncodeToString(id), Function: function, Key: k, Server: server,
			Header: header.Clone(), Size: size, Since: time.Now().UTC()}}
	if err := w.reserve(e); err != nil {
		return nil, err
	}
	f, err := w.journal.create(e.ID, size)
	if err != nil {
		close(e.created)
		w.forget(e)
		return nil, w.broken(err)
	}
	in := &Incoming{File: f, writer: w, bucket: b, write: e}
	r := e.record
	go func() {
		defer close(e.created)
		e.marker.Upload, in.answer, in.err = b.create(w.ctx, r)
		w.begins(e, e.marker.Upload)
	}()
	return in, nil
}

// broken logs an error of the journal. The write goes through.
func (w *Writer) broken(err error) error {
	w.config.Log.Warn("the journal of writes fails", "error", err)
	return fmt.Errorf("%w: the journal fails", ErrThrough)
}

// Commit returns when the object is durable on this node, and read and listed on every node from then on. All of its
// content is there, and sum is that's. Checksums in header have been compared with it: else the store would never take
// the object. With ErrThrough nothing was written. After another error nobody knows whether it is.
func (in *Incoming) Commit(ctx context.Context, header http.Header, sum [md5.Size]byte) error {
	w, e := in.writer, in.write
	e.Header, e.MD5 = header, sum[:]
	failed := w.journal.add(e.record, in.File)
	<-e.created
	switch {
	case failed != nil:
		return w.broken(failed)
	case in.err != nil && in.answer.refused(): // it will say so of the write itself
		return fmt.Errorf("%w: %w", ErrThrough, in.err)
	case in.err != nil:
		return in.err
	}
	e.marker = Marker{ID: e.ID, Node: w.config.Node, Upload: e.marker.Upload, Tag: tagOf(e.MD5), Size: e.Size, Since: e.Since, Key: e.Key.Key}
	in.ended, in.about = true, e.about()
	return w.commit(ctx, in.bucket, e)
}

// About is what the store is going to say of the object that was committed.
func (in *Incoming) About() source.Object { return in.about }

// Close ends the use of the File. What was not committed is nowhere.
func (in *Incoming) Close() error {
	defer in.writer.running.Done()
	if !in.ended {
		<-in.write.created
		in.writer.drop(in.bucket, in.write)
	}
	return in.File.Close()
}

// conflict is S3's code of a PUT with a condition that comes at the same time as another one.
const conflict = "ConditionalRequestConflict"

// commit puts the marker: once, as a second one might come when the first is gone. While another write of the object has
// one it waits.
func (w *Writer) commit(ctx context.Context, b bucket, e *write) error {
	var unknown error // of the answer, that is lost
	err := w.poll(ctx, w.patient(), nil, func(ctx context.Context, last bool) (committed bool, err error) {
		// It is put even if the client goes away meanwhile.
		tag, a, err := b.mark(w.ctx, e.marker, "")
		switch {
		case err == nil:
			e.marker.tag = tag
			w.begin(e)
			return true, nil
		case a.status == http.StatusPreconditionFailed || a.status == http.StatusConflict && a.code() == conflict:
			if last {
				return false, errors.Join(errBusy, w.overdue(ctx, b, e.Key.Key))
			}
			return false, w.await(ctx, b, e.Key.Key, "", w.patient())
		case a.refused(): // a store that takes no marker
			return false, fmt.Errorf("%w: %w", ErrThrough, err)
		}
		unknown = err
		return false, err
	})
	switch {
	case unknown != nil:
		return w.settle(b, e, unknown)
	case err != nil:
		w.drop(b, e)
	}
	return err
}

// errBusy says that others write the object all the time.
var errBusy = errors.New("other writes of the object are under way")

// begin has reads here get the write, and uploads it.
func (w *Writer) begin(e *write) {
	w.mu.Lock()
	w.own[e.Key], e.acked = e, true
	w.mu.Unlock()
	w.running.Go(func() { w.finish(e) })
}

// drop ends a write that has no marker, and never will.
func (w *Writer) drop(b bucket, e *write) {
	if e.marker.Upload != "" {
		_ = b.abort(w.ctx, e.Key.Key, e.marker.Upload) // else the store keeps an empty upload
	}
	w.forget(e)
}

// settle finds out what has become of a marker when its answer is lost. One that is not there may still come: the write is
// abandoned then.
func (w *Writer) settle(b bucket, e *write, lost error) error {
	m, err := b.marked(w.ctx, e.Key.Key)
	if err == nil && m != nil && m.ID == e.ID {
		e.marker = *m
		w.begin(e)
		return nil
	}
	if w.ctx.Err() != nil { // the next daemon finds out
		return lost
	}
	failed := w.abandon(e)
	w.running.Go(func() { w.finish(e) }) // which tries again to abandon it
	if failed != nil {
		return errors.Join(lost, failed)
	}
	_ = b.abort(w.ctx, e.Key.Key, e.marker.Upload) // if its marker comes, that is done again
	return fmt.Errorf("%w: %w", ErrThrough, lost)
}

// abandon has a write never be uploaded, in whatever daemon.
func (w *Writer) abandon(e *write) error {
	if err := w.journal.abandon(e.record); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Return(e.Function, e.Size)
	e.Abandoned, e.Size = true, 0
	return nil
}
