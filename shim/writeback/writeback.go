// Package writeback answers writes of intermediate data when they are durable on this node, and uploads them behind.
//
// The store is where nodes agree: there is no membership and no leader, and no clock is needed for correctness. A write is
// acknowledged once its content is durable here and its marker is in the store, of which there is one for each key.
// Whoever reads, lists or changes the object waits until the marker is gone. It goes when the store has the object. Who only
// reads the object may have it from the node that the marker names before.
//
// A request whose answer is lost may be applied by the store at any later time. So each request that could do harm then
// carries what makes it void: markers replace and end nothing but what they name by its entity tag, and the content comes
// by an upload in parts, which can be completed once and is named by the marker. model_test.go explores the protocol.
package writeback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headstart-mesh/headstart/shim/fair"
)

// ErrThrough says that a write cannot be behind: it has to go to the store at once. Nothing has been written.
var ErrThrough = errors.New("the write has to go through")

// ErrNoList says that the operator's list of stores has not come yet.
var ErrNoList = errors.New("the operator's list of stores has not come yet")

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
	// lastLook is how long a store has for the last answer of a wait.
	lastLook = 5 * time.Second
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
	// Store finds a store by its name. server tells it from others that have had the name. Its error is ErrNoList as
	// long as no list has come.
	Store func(name string) (s Store, server string, err error)
	// Patience is how long a request waits for a marker.
	Patience time.Duration
	// Holders bring what other nodes have pending; nil: reads wait for it.
	Holders Holders
	Log     *slog.Logger
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

	probing singleflight.Group // by bucket

	fromNodes, fromStore atomic.Int64 // objects that another node had pending when they were read, by where they came from
}

// write is one that is pending.
type write struct {
	record
	marker Marker // once it is known; its upload is empty before
	done   chan struct{}
	doubts int
	stored bool // the store has the object: all that is left is the marker
	acked  bool // it was acknowledged, or may have been. The Writer's lock guards it
	// completing: the store may have the object, and after it a later one. The Writer's lock guards it.
	completing bool

	created chan struct{} // closed when the store has answered to the beginning of the upload; nil: in an earlier daemon
	uploads []string      // all that it has begun in this daemon. The Writer's lock guards them
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
