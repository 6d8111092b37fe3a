package objects

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Key names what may have several versions on this node. Namespace is empty in buckets that namespaces share. In other
// buckets each namespace has objects of its own: by the time that its requests take, it could see what others have.
type Key struct{ Namespace, Store, Reference string }

// Key is how the node names an object that a namespace asks for, and what the operator says of its bucket.
func (c *Cache) Key(namespace, store, bucket, reference string) (Key, Rule) {
	rule := c.Rule(store, bucket)
	if rule.Shared {
		namespace = ""
	}
	return Key{namespace, store, reference}, rule
}

// object is one version of what a Key names, at each age: asked for, under way, complete, and kept while nobody
// uses it. Inputs are pins on it.
type object struct {
	cache *Cache
	key   Key
	from  source.Source
	rule  Rule
	// namespace is whose question it is: others wait for none that waits for its turn.
	namespace string
	cancel    context.CancelFunc
	late      *time.Timer // ends the fetch, if that takes too long

	answered chan struct{} // closed when the store's answer is there, or when there will be none
	done     chan struct{} // closed when the fetch has ended
	noticing sync.WaitGroup
	received atomic.Int64
	// header is what was found out about the object after its bytes: see Cache.Describe; nil: nothing.
	header atomic.Pointer[http.Header]

	// Set before answered is closed, for those who have a pin.
	about    source.Object
	entry    *buffer.Entry
	function string // of whose request the fetch is
	limit    int64

	// Set before done is closed. measured says that all of a stored object is there, so that its size is known.
	err      error
	measured bool

	// Guarded by the cache's lock.
	waiting []*Input // those who wait for the answer, in their order; nil from then on
	pins    int
	uses    int // how many pins there have been
	// alone: it comes from the store, by this node itself.
	alone bool
	// asked is when the store was asked, and said how long it says that its answer holds.
	asked time.Time
	said  time.Duration
	gone  bool // its entry is released, or about to be
	// kept: nobody uses it, since when; order is that of the place where it is kept, or was before it was used again.
	kept  bool
	since time.Time
	named bool // its file has names outside of the buffer: it is kept as long as these, pinned
	order *order
	// What an earlier daemon has left has no source until somebody asks for it, and an origin: see identity. Its content
	// is checked, or being checked, against its digests. sums: nil: they are not computed yet. looked is when they were.
	origin            string
	sums              []byte
	checked, checking bool
	looked            time.Time
	// changes is the slot's when the store was asked. If the node has changed the object since, the answer is only for
	// those who have waited for it.
	changes int
	// damaged: its content is not what it was. Nobody finds it any more.
	damaged bool
	// pinned: the operator has it stay, and the order has a pin for that.
	pinned bool
}

// newObject is an object that an input asks for.
func (c *Cache) newObject(i *Input) *object {
	return &object{cache: c, key: i.key, from: i.from, origin: identity(i.from), rule: i.rule, namespace: fair.Namespace(i.request.Function), alone: i.request.Alone, answered: make(chan struct{}), done: make(chan struct{})}
}

var errReleased = problem.New(http.StatusServiceUnavailable, "InputCancelled", "", "nobody waits for the input any more")

// begin takes what the store says, makes room for it, and gives pins to those who wait: what is wrong with one of
// them, such as its limit, is not wrong with the others.
func (o *object) begin(about source.Object) (io.WriterAt, error) {
	o.cache.mu.Lock()
	waiting := o.waiting
	o.cache.mu.Unlock()
	o.about = about
	var fit []*Input
	last := error(errReleased)
	for _, i := range waiting {
		err := i.admits(about.Size)
		if err == nil && o.entry == nil {
			// The entry has an identifier of its own: the request's next input may begin before the file of
			// the last one has gone.
			o.function, o.limit = i.request.Function, i.request.Limit
			if i.request.Outside && about.Size >= 0 {
				o.entry, err = o.cache.outside(about.Size)
			} else {
				o.entry, err = o.cache.Buffer.Create(buffer.NewID(), o.function, about.Size)
			}
		}
		switch {
		case err != nil:
			last = err
			o.cache.refuse(o, i, err)
		case !o.suits(i):
			o.cache.refuse(o, i, nil)
		default:
			fit = append(fit, i)
		}
	}
	switch {
	case o.entry == nil:
		return nil, last
	case !o.cache.begun(o, fit):
		o.entry.Release()
		return nil, errReleased
	}
	return o, nil
}

// admits is the problem of an input whose function does not take as much.
func (i *Input) admits(size int64) error {
	if size > i.request.Limit {
		return tooLarge(fmt.Sprintf("the input has %d bytes, and the function takes at most %d", size, i.request.Limit))
	}
	return nil
}

// headerNow is what is known of the object's header by now.
func (o *object) headerNow() http.Header {
	if later := o.header.Load(); later != nil {
		return *later
	}
	return o.about.Header
}

// size is how many bytes the object has, below 0 as long as nobody knows.
func (o *object) size() int64 {
	if o.complete() && o.measured {
		return o.received.Load()
	}
	return o.about.Size
}

// WriteAt counts what goes into the buffer, and bounds it where the size did not.
func (o *object) WriteAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > o.limit && o.about.Size < 0 {
		return 0, tooLarge(fmt.Sprintf("the input has more than the %d bytes that the function takes", o.limit))
	}
	o.received.Add(int64(len(p))) // before those who wait for the bytes can be done with them
	n, err := o.entry.WriteAt(p, at)
	o.received.Add(int64(n - len(p)))
	return n, err
}

// end notes how the fetch ended. The readers of what failed hear of it when its inputs have ended, which they can
// ask why.
func (o *object) end(err error) {
	o.cache.mu.Lock()
	o.err = err
	close(o.done)
	o.cache.mu.Unlock()
	if o.late != nil {
		o.late.Stop()
	}
	if err != nil && o.entry != nil {
		o.cache.fetches.Go(func() {
			o.noticing.Wait()
			o.entry.Fail(err)
		})
	}
}

func tooLarge(detail string) error {
	return problem.New(
		http.StatusRequestEntityTooLarge, problem.ReasonInputTooLarge, filterapi.AnnotationInputLimit, detail,
	)
}

// IsTooLarge tells whether err says that an input is larger than its function takes.
func IsTooLarge(err error) bool { return problem.ReasonOf(err) == problem.ReasonInputTooLarge }
