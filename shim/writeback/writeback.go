// Package writeback answers writes of intermediate data when they are durable on this node, and uploads them behind.
//
// The store is where nodes agree: there is no membership and no leader, and no clock is needed for correctness. A write is
// acknowledged once its content is durable here and its marker is in the store, of which there is one for each key.
// Whoever reads, lists or changes the object waits until the marker is gone. It goes when the store has the object.
//
// A request whose answer is lost may be applied by the store at any later time. So each request that could do harm then
// carries what makes it void: markers replace and end nothing but what they name by its entity tag, and the content comes
// by an upload in parts, which can be completed once and is named by the marker. model_test.go explores the protocol.
package writeback

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v5"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// ErrThrough says that a write cannot be behind: it has to go to the store at once. Nothing has been written.
var ErrThrough = errors.New("the write has to go through")

const (
	// uploadsMost is how many uploads of a node are under way at a time.
	uploadsMost = 8
	// doubtsMost is how often a completed upload is looked for: some stores answer before they are done.
	doubtsMost = 5
	// looksMost is how often a marker is looked for that may come late: an hour, and a store refuses a request that was
	// signed 15 minutes ago.
	looksMost = 32
	// probeAgain is after how long a bucket is tried again that takes no markers: the store may be another version by then.
	probeAgain = time.Hour
	// pollFirst and pollMost are how long one waits before looking at a marker again.
	pollFirst, pollMost = 20 * time.Millisecond, 200 * time.Millisecond
	// succeedEvery is how often one looks whether the daemon before has ended.
	succeedEvery = time.Second
	// retryMost is how long an upload rests at most after a failure, and lookMost an abandoned write between looks.
	retryMost, lookMost = 30 * time.Second, 5 * time.Minute
)

// Config is what a Writer is made of.
type Config struct {
	// Dir is the journal's directory. Its disk has Bytes for it. While another process has it, all writes go through.
	Dir string
	// Bytes and Writes are how much may be pending. Namespaces share them.
	Bytes, Writes int64
	// Node is how markers name this node.
	Node string
	// Store finds a store by its name. server tells it from others that have had the name.
	Store func(name string) (s Store, server string, err error)
	// Patience is how long a request waits for a marker.
	Patience time.Duration
	Log      *slog.Logger
}

// Writer writes behind. Its methods may be called at the same time.
type Writer struct {
	config  Config
	places  *fair.Places
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu           sync.Mutex
	journal      *journal // nil: another process has it
	bytes, count *fair.Share
	writes       map[string]*write // by their ids
	own          map[Key]*write    // those that reads on this node get
	probed       map[Key]probed    // buckets
}

// write is one that is pending.
type write struct {
	record
	marker Marker // once it is known; its upload is empty before
	done   chan struct{}
	doubts int
	stored bool // the store has the object: all that is left is the marker
	acked  bool // it was acknowledged, or may have been. The Writer's lock guards it
}

// Open opens the journal, and goes on with what is in it.
func Open(c Config) *Writer {
	w := &Writer{config: c, places: fair.NewPlaces(uploadsMost), bytes: fair.NewShare(c.Bytes), count: fair.NewShare(c.Writes),
		writes: map[string]*write{}, own: map[Key]*write{}, probed: map[Key]probed{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	switch err := w.resume(); {
	case errors.Is(err, errLocked):
		w.running.Go(w.succeed)
	case err != nil:
		w.unusable(err)
	}
	return w
}

// unusable says what is wrong with the journal. All else works without it.
func (w *Writer) unusable(err error) {
	w.config.Log.Error("all writes go through until the daemon is restarted", "error", err)
}

// succeed waits until the daemon before has ended, whose journal it takes over.
func (w *Writer) succeed() {
	ticker := time.NewTicker(succeedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			return
		}
		if err := w.resume(); !errors.Is(err, errLocked) {
			if err != nil {
				w.unusable(err)
			}
			return
		}
	}
}

// resume goes on with what is in the journal.
func (w *Writer) resume() error {
	j, found, damaged, err := openJournal(w.config.Dir)
	if err != nil {
		return err
	}
	for _, err := range damaged {
		w.config.Log.Error("the record of a write cannot be read, so that the write is not uploaded; the write's marker in the store names the object", "dir", w.config.Dir, "error", err)
	}
	w.mu.Lock()
	w.journal = j
	w.mu.Unlock()
	for _, r := range found {
		e := &write{record: r, done: make(chan struct{}), acked: true}
		w.add(e)
		w.running.Go(func() { w.finish(e) })
	}
	return nil
}

// Close ends all work. The next Writer goes on with it.
func (w *Writer) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.running.Wait()
	if w.journal != nil {
		w.journal.close()
	}
}

func (w *Writer) add(e *write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Add(e.Function, e.Size)
	w.count.Add(e.Function, 1)
	w.writes[e.ID] = e
}

// reserve is add, if the namespace may have as much.
func (w *Writer) reserve(e *write) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.count.Take(e.Function, 1) {
		return fmt.Errorf("%w: %s", ErrThrough, w.count.Full(e.Function, "writes"))
	}
	if !w.bytes.Take(e.Function, e.Size) {
		w.count.Return(e.Function, 1)
		return fmt.Errorf("%w: %s", ErrThrough, w.bytes.Full(e.Function, "bytes of writes"))
	}
	w.writes[e.ID] = e
	return nil
}

// forget ends a write, whose record is not needed any more.
func (w *Writer) forget(e *write) {
	w.journal.remove(e.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Return(e.Function, e.Size)
	w.count.Return(e.Function, 1)
	delete(w.writes, e.ID)
	close(e.done)
}

// disown has reads here not get a write any more. It is false if they did not.
func (w *Writer) disown(e *write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own[e.Key] != e {
		return false
	}
	delete(w.own, e.Key)
	return true
}

func (w *Writer) bucket(k Key) (bucket, error) {
	s, _, err := w.config.Store(k.Store)
	return bucket{s, k.Bucket}, err
}

// bucketOf is the bucket of a write: another server that has the store's name by now knows nothing of it.
func (w *Writer) bucketOf(e *write) (bucket, error) {
	s, server, err := w.config.Store(e.Store)
	if err == nil && server != e.Server {
		err = fmt.Errorf("store %q is %s now, and the write is for %s", e.Store, server, e.Server)
	}
	return bucket{s, e.Bucket}, err
}

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

	created chan struct{} // closed when the store has answered to the beginning of the upload
	answer  answer
	err     error
	ended   bool
	about   source.Object
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
	if err := w.probe(ctx, b, k); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrThrough, err)
	}
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails
	e := &write{done: make(chan struct{}), record: record{ID: hex.EncodeToString(id), Function: function, Key: k, Server: server,
		Header: header.Clone(), Size: size, Since: time.Now().UTC()}}
	if err := w.reserve(e); err != nil {
		return nil, err
	}
	f, err := w.journal.create(e.ID, size)
	if err != nil {
		w.forget(e)
		return nil, w.broken(err)
	}
	in := &Incoming{File: f, writer: w, bucket: b, write: e, created: make(chan struct{})}
	r := e.record
	go func() {
		defer close(in.created)
		e.marker.Upload, in.answer, in.err = b.create(w.ctx, r)
	}()
	return in, nil
}

// broken is a journal's error: whoever writes can do without.
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
	<-in.created
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
		<-in.created
		in.writer.drop(in.bucket, in.write)
	}
	return in.File.Close()
}

// enter counts one that Close waits for.
func (w *Writer) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || w.journal == nil {
		return false
	}
	w.running.Add(1)
	return true
}

// probed is what was found out about a bucket.
type probed struct {
	err error // nil: it takes markers
	at  time.Time
}

// probe finds out whether a bucket takes markers. That it does not is looked at again after a while.
func (w *Writer) probe(ctx context.Context, b bucket, k Key) error {
	at := Key{Store: k.Store, Bucket: k.Bucket}
	w.mu.Lock()
	p, known := w.probed[at]
	w.mu.Unlock()
	if known && (p.err == nil || time.Since(p.at) < probeAgain) {
		return p.err
	}
	err := b.probe(ctx)
	if err != nil && !errors.Is(err, errUnconditional) {
		return err // that may pass
	}
	if err != nil {
		w.config.Log.Warn("a bucket with write: back is written through", "store", k.Store, "bucket", k.Bucket, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed[at] = probed{err, time.Now()}
	return err
}

// conflict is S3's code of a PUT with a condition that comes at the same time as another one.
const conflict = "ConditionalRequestConflict"

// commit puts the marker: once, as a second one might come when the first is gone. While another write of the object has
// one it waits.
func (w *Writer) commit(ctx context.Context, b bucket, e *write) error {
	var unknown error // of the answer, that is lost
	err := w.poll(ctx, nil, func(last bool) (committed bool, err error) {
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
			return false, w.await(ctx, b, e.Key.Key)
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

// errForeign says that the marker is not, or no more, this write's.
var errForeign = errors.New("the write has no marker")

// finish does what is left of a write.
func (w *Writer) finish(e *write) {
	if !e.Abandoned {
		err := w.retry(e, retryMost, 0, func() error { return w.upload(e) })
		if !errors.Is(err, errForeign) {
			if err == nil {
				w.forget(e)
			}
			return // else the next daemon goes on
		}
		lost := "a write of an earlier daemon is not uploaded: it was not acknowledged, or was given up"
		if w.disown(e) {
			lost = "a write was given up, and is lost"
		}
		w.config.Log.Error(lost, "store", e.Store, "bucket", e.Bucket, "key", e.Key.Key, "bytes", e.Size, "write", e.ID)
		if err := w.retry(e, retryMost, 0, func() error { return w.abandon(e) }); err != nil {
			return
		}
	}
	if err := w.retry(e, lookMost, looksMost, func() error { return w.look(e) }); w.ctx.Err() == nil {
		w.config.Log.Debug("an abandoned write is forgotten", "write", e.ID, "error", err)
		w.forget(e)
	}
}

// retry tries until it works, or at most so many times, with rests of up to most.
func (w *Writer) retry(e *write, most time.Duration, tries uint, try func() error) error {
	rests := backoff.NewExponentialBackOff()
	rests.InitialInterval, rests.MaxInterval = 100*time.Millisecond, most
	_, err := backoff.Retry(w.ctx, func() (struct{}, error) {
		err := try()
		if errors.Is(err, errForeign) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(rests), backoff.WithMaxElapsedTime(0), backoff.WithMaxTries(tries),
		backoff.WithNotify(func(err error, after time.Duration) {
			if !errors.Is(err, errMayCome) {
				w.config.Log.Warn("a write is not in the store yet", "store", e.Store, "bucket", e.Bucket, "key", e.Key.Key,
					"write", e.ID, "again", after, "error", err)
			}
		}))
	return err
}

// errMayCome says that the marker of an abandoned write is not there.
var errMayCome = errors.New("its marker may still come")

// look removes the marker of an abandoned write, should it have come.
func (w *Writer) look(e *write) error {
	b, err := w.bucketOf(e)
	if err != nil {
		return err
	}
	m, err := b.marked(w.ctx, e.Key.Key)
	if err != nil || m == nil || m.ID != e.ID {
		return errors.Join(errMayCome, err)
	}
	if err := b.abort(w.ctx, e.Key.Key, m.Upload); err != nil {
		return err
	}
	if removed, err := b.unmark(w.ctx, *m); err != nil || !removed {
		return errors.Join(errMayCome, err)
	}
	return nil // it was sent once
}

// upload brings the store the object, and removes the marker.
func (w *Writer) upload(e *write) error {
	leave, err := w.places.Wait(fair.For(w.ctx, e.Function))
	if err != nil {
		return err
	}
	defer leave()
	b, err := w.bucketOf(e)
	if err != nil {
		return err
	}
	if e.marker.tag == "" { // a restart, or another upload
		m, err := b.marked(w.ctx, e.Key.Key)
		switch {
		case err != nil:
			return err
		case m == nil || m.ID != e.ID:
			if e.stored {
				return nil // its marker has gone, too
			}
			return errForeign
		}
		e.marker = *m
	}
	if !e.stored {
		if err := w.store(b, e); err != nil {
			return err
		}
		e.stored = true
	}
	w.disown(e) // from here on another node may write it
	removed, err := b.unmark(w.ctx, e.marker)
	if err == nil && !removed {
		e.marker.tag = ""
		err = errors.New("its marker is another one than it was")
	}
	return err
}

// store has the store have the object, by the upload that the marker names.
func (w *Writer) store(b bucket, e *write) error {
	content, err := os.Open(w.journal.content(e.ID))
	if err != nil {
		return err
	}
	defer content.Close()
	completed := ""
	part, err := b.part(w.ctx, e.record, e.marker.Upload, content)
	if err == nil {
		completed, err = b.complete(w.ctx, e.record, e.marker.Upload, part)
	}
	if err != nil && !errors.Is(err, errNoUpload) {
		return err
	}
	// The answer alone does not count: of an upload that is gone some stores say that it is complete.
	header, err := b.head(w.ctx, e.Key.Key)
	if err != nil {
		return err
	}
	switch tag := header.Get("Etag"); {
	case tag == tagOf(e.MD5) && (completed != "" || e.describes(header)):
		return nil
	case tag == completed && completed != "":
		w.config.Log.Warn("the store gives objects other entity tags than S3; use write: through", "store", e.Store, "bucket", e.Bucket, "key", e.Key.Key)
		return nil
	}
	if e.doubts++; e.doubts < doubtsMost {
		return errors.New("the store does not have the object after its upload")
	}
	e.doubts = 0
	return w.renew(b, e)
}

// describes tells whether an object in the store has a write's own header. It may be an earlier one of the same content.
func (r record) describes(header http.Header) bool {
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") && !slices.Equal(values, header[name]) {
			return false
		}
	}
	return true
}

// renew begins another upload, which the marker names from then on, or another one that has done so.
func (w *Writer) renew(b bucket, e *write) error {
	upload, _, err := b.create(w.ctx, e.record)
	if err != nil {
		return err
	}
	next := e.marker
	next.Upload = upload
	_, a, err := b.mark(w.ctx, next, e.marker.tag)
	if err != nil && a.refused() {
		_ = b.abort(w.ctx, e.Key.Key, upload) // else the store keeps an empty upload
	}
	e.marker.tag = "" // what it is now, the store knows
	return errors.Join(errors.New("another upload begins"), err)
}
