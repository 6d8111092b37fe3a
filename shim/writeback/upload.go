package writeback

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/headstart-mesh/headstart/shim/fair"
)

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
			level := slog.LevelWarn
			switch {
			case errors.Is(err, errMayCome):
				return
			case errors.Is(err, ErrNoList): // the daemon starts
				level = slog.LevelDebug
			}
			w.config.Log.Log(w.ctx, level, "a write is not in the store yet", "store", e.Store, "bucket", e.Bucket,
				"key", e.Key.Key, "write", e.ID, "again", after, "error", err)
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
		w.mu.Lock()
		e.completing = true
		w.mu.Unlock()
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
	w.begins(e, upload)
	next := e.marker
	next.Upload = upload
	_, a, err := b.mark(w.ctx, next, e.marker.tag)
	if err != nil && a.refused() {
		_ = b.abort(w.ctx, e.Key.Key, upload) // else the store keeps an empty upload
	}
	e.marker.tag = "" // what it is now, the store knows
	return errors.Join(errors.New("another upload begins"), err)
}
