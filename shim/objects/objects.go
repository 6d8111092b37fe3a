// Package objects fetches inputs from their stores into the buffer while the sandboxes that will read them start,
// and keeps what it has fetched: a node downloads an object once, as long as that stays the same and there is room.
package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// maxInputs is how many inputs may be open at the same time. Each costs a file and a
	// descriptor per reader; the buffer's limit bounds their bytes, but not how many empty
	// ones there are.
	maxInputs = 1024

	// maxOfFunction is how many of them one function may have: three quarters, as of the
	// buffer's bytes. Those that wait for a store count as well, so that a store that hangs
	// leaves the inputs of other functions some room.
	maxOfFunction = maxInputs - maxInputs/4

	// longest is how long a fetch may take, whatever its owners wait for: as long as a
	// Knative request may by default (maxRevisionTimeoutSeconds). One that is shared has it from
	// when the last of them came.
	longest = 10 * time.Minute
)

// Request asks for one request's input.
type Request struct {
	// ID identifies the request, and Name the input, if the request has several: each is fetched
	// once.
	ID, Name string
	// Function is the namespace/name of the function that gets the input.
	Function string
	// Store is the name of the store that Reference belongs to.
	Store     string
	Reference string
	// Limit is the largest size allowed, in bytes.
	Limit int64
	// Alone: the node asks the store itself, and no neighbour. It is a neighbour's question.
	Alone bool
	// Outside: what has to be fetched gets a file that does not count as an input's, for Place.
	Outside bool
}

// Neighbours may have what a store is asked for.
type Neighbours interface {
	// Fetch is source.Source's, for the namespace that the context is for. What no neighbour has in time, store brings,
	// which is the Source's own Fetch. What a neighbour says of an object holds for Fresh by the rule of its bucket.
	Fetch(ctx context.Context, k Key, held string, begin source.Begin, store func(context.Context, source.Begin) error) error
}

// Outcome is how a fetch ended, for metrics.
type Outcome struct {
	Function, Store string
	// Reason is the problem's title; empty for success.
	Reason string
	// Way is how the input came to its object, empty if it has none. With others than WayStore
	// another outcome has the bytes.
	Way   string
	Bytes int64 // written to the buffer
	Began time.Time
	Ended time.Time
}

// Config is what a cache is made of.
type Config struct {
	// Sources finds a store by its name, for a function.
	Sources func(function, store string) (source.Source, error)
	// Rule is what the operator says of a store's bucket; nil: nothing of any.
	Rule func(store, bucket string) Rule
	// Neighbours are asked before the store; nil: there are none.
	Neighbours Neighbours
	// Buffer is where objects are. The cache is the only one that has entries in it.
	Buffer *buffer.Buffer
	// Drop has what uses objects' files outside of the buffer give up some that it does not need, and tells whether
	// there were any; nil: nothing uses any. Spared: these files leave a part of the disk free.
	Drop   func() (bool, error)
	Spared bool
	// Damaged is told of a file with names outside of the buffer whose content is not what it was; nil: nobody is.
	Damaged func(file os.FileInfo)
	// Inherit has the buffer find what the node's other daemon has left, and tells whether it is still to end; nil:
	// there is none.
	Inherit func() (again bool)
	// Age is how long an object is kept that nobody uses; 0: not at all.
	Age time.Duration
	// Metrics are told of each input when it has ended, and of what is evicted; nil: nobody is.
	Metrics Metrics
}

// Cache has the objects of a node. Its methods may be called at the same time.
type Cache struct {
	Config

	ctx     context.Context
	cancel  context.CancelFunc
	fetches sync.WaitGroup

	making sync.Mutex // taken before mu

	mu     sync.Mutex
	closed bool
	inputs map[key]*Input // those with owners
	count  map[string]int // how many of them a function has
	shares *fair.Share    // and namespaces

	deposited int64 // bytes of deposits that have not ended

	slots  map[Key]*slot
	orders map[place]*order
	kept   int          // objects that nobody uses
	pinned map[Key]bool // what the operator has stay, in each version
	// For Condition.
	damages    int
	lastDamage time.Time
	// broken, dead, past and idle are what unlock has to see to.
	broken []os.FileInfo // for Damaged
	dead   []*buffer.Entry
	past   []*buffer.Entry // in use, and found by nobody any more
	idle   []use

	fresh  chan *object // those that are kept for the first time
	checks *fair.Places // for known
}

// key names a request's input.
type key struct{ request, name string }

func (r Request) key() key { return key{r.ID, r.Name} }

// explained has a problem with an input name this one's annotation. Whatever reads objects knows no
// names of inputs, and shares what it reads.
func (r Request) explained(err error) error {
	p, is := errors.AsType[*problem.Problem](err)
	if !is || p.Field != filterapi.AnnotationInput && !strings.HasPrefix(p.Field, filterapi.AnnotationNamed) ||
		p.Field == filterapi.InputKey(r.Name) {
		return err
	}
	named := *p
	named.Field = filterapi.InputKey(r.Name)
	return source.Because(&named, err)
}

var errClosed = problem.New(http.StatusServiceUnavailable, "ShuttingDown", "", "the node takes no more inputs")

// New returns a cache, which has to be closed.
func New(cfg Config) *Cache {
	if cfg.Rule == nil {
		cfg.Rule = func(string, string) Rule { return Rule{} }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = quiet{}
	}
	c := &Cache{Config: cfg, inputs: map[key]*Input{}, count: map[string]int{}, shares: fair.NewShare(maxInputs),
		slots: map[Key]*slot{}, orders: map[place]*order{}, pinned: map[Key]bool{}, fresh: make(chan *object, keptMost),
		checks: fair.NewPlaces(checksMost)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	cfg.Buffer.EvictWith(c.evictFor)
	c.revive()
	if cfg.Inherit != nil {
		c.fetches.Go(c.inherit)
	}
	if cfg.Age > 0 {
		c.fetches.Go(func() { c.sweep(c.ctx) })
		c.fetches.Go(c.notes)
		c.fetches.Go(c.scrub)
	}
	return c
}

// Fetch returns the request's input, of which the caller becomes an owner: it must call
// Release. The first call for a request starts the fetch; it goes on when ctx ends, from
// which only the values are taken (a trace's span). What is wrong shows on the input.
func (c *Cache) Fetch(ctx context.Context, r Request) *Input {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.inputs[r.key()]; ok {
		if i.request.Function != r.Function || i.request.Store != r.Store || i.request.Reference != r.Reference {
			return refused(r, problem.New(http.StatusConflict, problem.ReasonDuplicateRequest, filterapi.InputKey(r.Name),
				"the request's identifier belongs to another input"))
		}
		i.owners++
		return i
	}
	if err := c.room(r.Function); err != nil {
		return refused(r, err)
	}
	return c.start(ctx, r, c.fetch)
}

// room takes room for another input of the function, or tells why there is none. The caller holds
// the lock.
func (c *Cache) room(function string) error {
	switch {
	case c.closed:
		return errClosed
	case c.count[function] == maxOfFunction:
		return tooManyInputs(fmt.Sprintf("the node holds %d inputs of the function already", maxOfFunction))
	case !c.shares.Take(function, 1):
		return tooManyInputs("the node holds " + c.shares.Full(function, "inputs"))
	}
	return nil
}

func tooManyInputs(detail string) error {
	return problem.New(http.StatusServiceUnavailable, "TooManyInputs", "", detail)
}

// start has an input brought by bring. Its context has only the values of ctx, and is cancelled by the input's last
// owner, by Close, or when it has ended. The caller holds the lock.
func (c *Cache) start(ctx context.Context, r Request, bring func(context.Context, *Input) error) *Input {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := newInput(r)
	i.cache, i.cancel, i.owners = c, cancel, 1
	c.inputs[r.key()] = i
	c.count[r.Function]++
	closing := context.AfterFunc(c.ctx, cancel)
	c.fetches.Go(func() {
		defer cancel()
		defer closing()
		i.end(bring(ctx, i))
		c.Metrics.Ended(i.outcome())
		close(i.done)
		if i.object != nil {
			i.object.noticing.Done()
		}
	})
	return i
}

// leaveOne takes one owner off an input, and tells whether it was the last.
func (c *Cache) leaveOne(i *Input) (last bool) {
	c.mu.Lock()
	defer c.unlock()
	i.owners--
	if i.owners > 0 {
		return false
	}
	delete(c.inputs, i.request.key())
	c.shares.Return(i.request.Function, 1)
	if c.count[i.request.Function]--; c.count[i.request.Function] == 0 {
		delete(c.count, i.request.Function)
	}
	c.unpin(i)
	return true
}

// fetch brings an input's object.
func (c *Cache) fetch(ctx context.Context, i *Input) error {
	ref, err := source.ParseReference(i.request.Reference)
	if err != nil {
		return err
	}
	if i.from, err = c.Sources(i.request.Function, i.request.Store); err != nil {
		return fmt.Errorf("opening store %q: %w", i.request.Store, err)
	}
	i.key, i.rule = c.Key(fair.Namespace(i.request.Function), i.request.Store, ref.Bucket, i.request.Reference)
	if err := c.find(ctx, i, ref); err != nil {
		return err
	}
	return i.follow(ctx, ref)
}

// Close refuses new inputs, cancels the fetches and waits for them until ctx ends. The
// inputs keep what they have until they are released. What the cache keeps its successor finds in the buffer.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	done := make(chan struct{})
	go func() { c.fetches.Wait(); close(done) }()
	select {
	case <-done:
		return c.bequeath()
	case <-ctx.Done():
		return fmt.Errorf("waiting for fetches to end: %w", context.Cause(ctx))
	}
}
