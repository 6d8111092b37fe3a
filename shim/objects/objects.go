// Package objects fetches inputs from their stores into the buffer, once per request and,
// while it stays the same, once per object, while the sandboxes that will read them start.
package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
}

// Outcome is how a fetch ended, for metrics.
type Outcome struct {
	Function, Store string
	// Reason is the problem's title; empty for success.
	Reason string
	// Shared says that the input came by another request's fetch, whose outcome has the
	// bytes.
	Shared bool
	Bytes  int64 // written to the buffer
	Began  time.Time
	Ended  time.Time
}

// Cache runs fetches. Its methods may be called at the same time.
type Cache struct {
	sources func(function, store string) (source.Source, error)
	shared  func(store, bucket string) bool
	buffer  *buffer.Buffer
	observe func(Outcome)

	ctx     context.Context
	cancel  context.CancelFunc
	fetches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	inputs map[key]*Input // those with owners
	count  map[string]int // how many of them a function has
	shares *fair.Share    // and namespaces
	// leaders are those whose fetches others may share. They have owners or sharers.
	leaders map[object]*Input
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

// New returns a cache. sources finds a store by its name, for a function; shared tells in which buckets namespaces
// share fetches, nil for none; observe is told of each fetch when it has ended, from the fetch's goroutine.
func New(sources func(function, store string) (source.Source, error), shared func(store, bucket string) bool,
	buf *buffer.Buffer, observe func(Outcome),
) *Cache {
	if shared == nil {
		shared = func(string, string) bool { return false }
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Cache{sources: sources, shared: shared, buffer: buf, observe: observe, ctx: ctx, cancel: cancel,
		inputs: map[key]*Input{}, count: map[string]int{}, shares: fair.NewShare(maxInputs), leaders: map[object]*Input{}}
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
	ctx, cancel := context.WithCancelCause(fair.For(context.WithoutCancel(ctx), r.Function))
	late := time.AfterFunc(longest, func() { cancel(context.DeadlineExceeded) })
	i := c.start(ctx, func() { late.Stop(); cancel(nil) }, r, c.fetch)
	i.late = late
	return i
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

// start has an input brought by bring. Its context is cancelled by the input's last owner, by
// Close, or when it has ended. The caller holds the lock.
func (c *Cache) start(ctx context.Context, cancel context.CancelFunc, r Request, bring func(context.Context, *Input) error) *Input {
	i := newInput(r)
	i.cache, i.cancel, i.owners = c, cancel, 1
	c.inputs[r.key()] = i
	c.count[r.Function]++
	closing := context.AfterFunc(c.ctx, cancel)
	c.fetches.Go(func() {
		defer cancel()
		defer closing()
		i.end(bring(ctx, i))
		c.observe(i.outcome())
		close(i.done)
		i.fail()
	})
	return i
}

// leave takes one owner off an input. last says that it was the input's last; needless is
// the input whose entry nobody needs any more, if there is one.
func (c *Cache) leave(i *Input) (last bool, needless *Input) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.owners--
	if i.owners > 0 {
		return false, nil
	}
	delete(c.inputs, i.request.key())
	c.shares.Return(i.request.Function, 1)
	if c.count[i.request.Function]--; c.count[i.request.Function] == 0 {
		delete(c.count, i.request.Function)
	}
	holder := i
	if i.leader != nil {
		holder = i.leader
		holder.sharers--
	}
	if holder.owners+holder.sharers > 0 {
		return true, nil
	}
	if c.leaders[holder.object] == holder {
		delete(c.leaders, holder.object)
	}
	return true, holder
}

// fetch runs an input's fetch to its end.
func (c *Cache) fetch(ctx context.Context, i *Input) error {
	ref, err := source.ParseReference(i.request.Reference)
	if err != nil {
		return err
	}
	from, err := c.sources(i.request.Function, i.request.Store)
	if err != nil {
		return fmt.Errorf("opening store %q: %w", i.request.Store, err)
	}
	if shared, err := c.share(ctx, i, from, ref); shared {
		return err
	}
	if err := from.Fetch(ctx, ref, i.begin); err != nil {
		return err
	}
	if i.entry == nil {
		return errNoObject
	}
	err = i.entry.Complete()
	i.measured = err == nil
	return err
}

// Close refuses new inputs, cancels the fetches and waits for them until ctx ends. The
// inputs keep what they have until they are released.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	done := make(chan struct{})
	go func() { c.fetches.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for fetches to end: %w", context.Cause(ctx))
	}
}
