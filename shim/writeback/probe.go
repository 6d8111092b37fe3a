package writeback

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// tryAge is from which age on a try is over: each of its few requests has smallTimeout.
	tryAge = time.Hour
	// sweepMost is how many tries that were left one sweep removes.
	sweepMost = 100
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
	w.running.Go(func() { // who tries is counted, so that Close still waits
		if err := b.sweep(w.ctx); err != nil {
			w.config.Log.Debug("what earlier tries have left stays", "store", at.Store, "bucket", at.Bucket, "error", err)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed[at] = probed{err, time.Now()}
	return err
}

// sweep removes what tries of daemons that were killed have left. A try's age is by the store's clock: a node's may be
// wrong, and a try that is under way has to stay. It takes one list, and at most a removal for each entry of that.
func (b bucket) sweep(ctx context.Context) error {
	query := url.Values{"list-type": {"2"}, "prefix": {tries}, "max-keys": {strconv.Itoa(sweepMost)}}
	a, err := b.small(ctx, http.MethodGet, "", query, nil, nil)
	if err != nil {
		return fmt.Errorf("listing tries: %w", err)
	}
	var page struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []struct {
			Key          string
			LastModified time.Time
		}
	}
	if !a.ok() || xml.Unmarshal(a.body, &page) != nil {
		return a.err("listing tries")
	}
	now, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return fmt.Errorf("listing tries: the store does not say what time it is: %w", err)
	}
	for _, c := range page.Contents[:min(len(page.Contents), sweepMost)] {
		if !strings.HasPrefix(c.Key, tries) || now.Sub(c.LastModified) < tryAge {
			continue
		}
		a, err := b.small(ctx, http.MethodDelete, c.Key, nil, nil, nil)
		if err == nil && !a.ok() {
			err = a.err("removing a try")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
