package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Events is who hears what an operator should see.
type Events interface {
	Event(*nodeapi.Event)
}

// Config is what a node's triggers need.
type Config struct {
	// Gateway answers requests as the node's own gateway sends them.
	Gateway http.Handler
	// Function returns a function of the node, nil if there is none of that name.
	Function func(name string) *nodeapi.Function
	// Open returns one consumer's part in the group that a function's consumers are. The
	// consumer's name has been given to no other.
	Open func(t *nodeapi.Trigger, consumer string) (Stream, error)
	// Node is the node's name, Process another name of this process of it.
	Node, Process string
	Events        Events
	Metrics       *Metrics
	Log           *slog.Logger
}

// Set are the consumers of a node.
type Set struct {
	config Config

	// taking ends when no more is read, delivering when what was read is let go of.
	taking, delivering context.Context
	stop, abandon      context.CancelFunc
	running            sync.WaitGroup

	mu   sync.Mutex
	by   map[string]*running // by function
	made int                 // consumers so far
}

type running struct {
	trigger *nodeapi.Trigger
	stop    context.CancelFunc
}

// New returns a set without consumers.
func New(c Config) *Set {
	s := &Set{config: c, by: map[string]*running{}}
	s.taking, s.stop = context.WithCancel(context.Background())
	s.delivering, s.abandon = context.WithCancel(context.Background())
	return s
}

// Set replaces the triggers. Those that stay as they are go on; of those that go, what was
// taken is seen to its end. It does not block.
func (s *Set) Set(triggers []*nodeapi.Trigger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taking.Err() != nil {
		return
	}
	next := make(map[string]*nodeapi.Trigger, len(triggers))
	for _, t := range triggers {
		next[t.GetFunction()] = t
	}
	for name, r := range s.by {
		if t := next[name]; t != nil && proto.Equal(t, r.trigger) {
			delete(next, name)
			continue
		}
		r.stop()
		delete(s.by, name)
	}
	for name, t := range next {
		if err := s.start(t); err != nil {
			s.config.Log.Error("a stream is not consumed", "function", name, "error", err)
			s.config.Events.Event(&nodeapi.Event{Function: name, Reason: reasonUnavailable, Field: field, Message: "the stream cannot be consumed: " + err.Error()})
		}
	}
}

// start runs a consumer; the caller holds mu.
func (s *Set) start(t *nodeapi.Trigger) error {
	d, err := newDelivery(s.config.Gateway, s.config.Node, t)
	if err != nil {
		return err
	}
	// A name of its own for each, so that one that ends takes nothing from the next.
	s.made++
	name := fmt.Sprintf("%s%d", prefix(s.config.Node, s.config.Process), s.made)
	stream, err := s.config.Open(t, name)
	if err != nil {
		return err
	}
	c := &consumer{delivery: d, function: s.config.Function, stream: stream, events: s.config.Events, metrics: s.config.Metrics,
		log:   s.config.Log.With("function", t.GetFunction(), "stream", t.GetStream(), "consumer", name),
		slots: semaphore.NewWeighted(atOnce), hands: semaphore.NewWeighted(inHand), bytes: semaphore.NewWeighted(bytesInHand)}
	taking, stop := context.WithCancel(s.taking)
	s.by[t.GetFunction()] = &running{trigger: t, stop: stop}
	s.running.Go(func() {
		defer s.ended(t.GetFunction())
		defer stop()
		c.run(taking, s.delivering)
	})
	return nil
}

// prefix begins the names of a process's consumers.
func prefix(node, process string) string { return node + "/" + process + "/" }

// Earlier tells of a consumer's name whether it is that of another process of the node.
func Earlier(node, process string) func(consumer string) bool {
	return func(consumer string) bool {
		return strings.HasPrefix(consumer, node+"/") && !strings.HasPrefix(consumer, prefix(node, process))
	}
}

// Stop has no more read. What waits for another try is given back to the streams; what is
// being delivered goes on.
func (s *Set) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// ended forgets what a consumer has told, until its end, of a stream that nobody here consumes
// any more.
func (s *Set) ended(function string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[function] == nil {
		s.config.Metrics.forget(function)
	}
}

// Close stops, and waits until nothing is in hand any more. When ctx ends before, deliveries
// are broken off; their entries are tried again by others.
func (s *Set) Close(ctx context.Context) error {
	s.Stop()
	broken := context.AfterFunc(ctx, s.abandon)
	s.running.Wait()
	s.abandon()
	if !broken() {
		return fmt.Errorf("ending the triggers: %w", errors.Join(errBrokenOff, context.Cause(ctx)))
	}
	return nil
}

var errBrokenOff = errors.New("deliveries were broken off")
