package writeback

import (
	"errors"
	"time"
)

// probed is what was found out about a bucket.
type probed struct {
	err error // nil: it takes markers
	at  time.Time
}

// probe finds out whether a bucket takes markers, once for all who ask at the same time. That it does not is looked at again after a while.
func (w *Writer) probe(b bucket, k Key) error {
	at := Key{Store: k.Store, Bucket: k.Bucket}
	w.mu.Lock()
	p, known := w.probed[at]
	w.mu.Unlock()
	if known && (p.err == nil || time.Since(p.at) < probeAgain) {
		return p.err
	}
	_, err, _ := w.probing.Do(k.Store+"/"+k.Bucket, func() (any, error) { return nil, w.try(b, at) })
	return err
}

// try probes a bucket, and notes what is found out.
func (w *Writer) try(b bucket, at Key) error {
	err := b.probe(w.ctx)
	if err != nil && !errors.Is(err, errUnconditional) {
		return err // that may pass
	}
	if err != nil {
		w.config.Log.Warn("a bucket with write: back is written through", "store", at.Store, "bucket", at.Bucket, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed[at] = probed{err, time.Now()}
	return err
}
