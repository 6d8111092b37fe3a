package istio

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
	// settle is waited after word of a change of our objects, most of which we have made
	// ourselves, so that several are looked at together.
	settle = 100 * time.Millisecond
	// retryFirst and retryLast bound the time until what failed is tried again.
	retryFirst = time.Second
	retryLast  = time.Minute
	// absentPoll is how soon it is noticed that Istio is installed, or that a watch has to
	// be begun again.
	absentPoll = 5 * time.Second
)

// Writer keeps the mesh as Desired says, also when others change what is ours.
type Writer struct {
	api API
	cfg Config
	log *slog.Logger

	desired atomic.Pointer[Desired]
	status  atomic.Pointer[Status]
	wanted  chan struct{} // a token after Set
	touched chan struct{} // a token after a change in the API server
}

// NewWriter returns a Writer that does nothing until Run.
func NewWriter(api API, cfg Config, log *slog.Logger) *Writer {
	w := &Writer{api: api, cfg: cfg, log: log, wanted: make(chan struct{}, 1), touched: make(chan struct{}, 1)}
	w.status.Store(&Status{})
	return w
}

// Set says what is to be in the mesh, and returns at once. Before the first Set nothing
// is written or deleted: call it when the platform's whole state is known. The same again
// costs nothing, so it may be called for every change of the platform's: most are of
// instances, and looking at the mesh takes a list of all that is ours.
func (w *Writer) Set(d Desired) {
	if before := w.desired.Swap(&d); before == nil || !reflect.DeepEqual(*before, d) {
		token(w.wanted)
	}
}

// Status returns how far the last attempt came.
func (w *Writer) Status() Status { return *w.status.Load() }

// Run works until ctx ends. It may be called again then, and looks at everything anew.
func (w *Writer) Run(ctx context.Context) {
	token(w.wanted)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	for k, q := range watched {
		watchers.Go(func() { w.watch(ctx, k, q) })
	}
	retry := &backoff.ExponentialBackOff{InitialInterval: retryFirst, MaxInterval: retryLast, Multiplier: 2, RandomizationFactor: 0.2}
	retry.Reset()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wanted:
		case <-w.touched:
			if !pause(ctx, settle) {
				return
			}
		case <-again:
		}
		d := w.desired.Load()
		if d == nil {
			continue
		}
		s, whole := w.reconcile(ctx, *d)
		if ctx.Err() != nil {
			return
		}
		if !whole {
			continue // what is wanted now is another thing
		}
		w.report(s)
		switch {
		case !s.Installed && len(s.Problems) == 0:
			again = time.After(absentPoll)
		case len(s.Problems) > 0:
			again = time.After(retry.NextBackOff())
		default:
			again = nil
			retry.Reset()
		}
	}
}

// report logs what is new about a status, once.
func (w *Writer) report(s Status) {
	before := w.status.Swap(&s)
	if s.Installed != before.Installed {
		w.log.Info("Istio's objects", "installed", s.Installed)
	}
	known := make(map[Problem]bool, len(before.Problems))
	for _, p := range before.Problems {
		known[p] = true
	}
	for _, p := range s.Problems {
		if !known[p] {
			w.log.Warn("mesh configuration", "object", p.Object, "cause", p.Cause, "error", p.Message, "fix", p.Fix)
		}
	}
	if len(before.Problems) > 0 && len(s.Problems) == 0 {
		w.log.Info("mesh configuration is in place", "objects", s.Objects)
	}
}

// watched are the objects whose changes are looked at.
var watched = map[Kind]Query{
	EnvoyFilter:      {Labels: Selector},
	TrafficExtension: {Name: PrefetchName},
	WasmPlugin:       {Name: PrefetchName},
}

// watch says that something changed. What it was, reconcile finds out.
func (w *Writer) watch(ctx context.Context, k Kind, q Query) {
	for {
		events, err := w.api.Watch(ctx, k, w.cfg.namespace(), q)
		if err == nil {
			token(w.touched) // something may have changed in between
			for range events.ResultChan() {
				token(w.touched)
			}
			events.Stop()
		}
		// An error is one for reconcile too, which tells of it.
		if !pause(ctx, absentPoll) {
			return
		}
	}
}

func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause reports whether ctx lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
