// Package process supervises the embedded platform's child processes: it starts them in
// order, restarts what dies, and stops them in reverse order. It leaves none behind, and
// when it dies itself, the kernel tells its children.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// readyTimeout is for the slowest child, an Envoy that compiles its filters on a busy
	// two-core machine (about 5 s alone), with a wide margin. A context may end sooner.
	readyTimeout = 90 * time.Second
	// defaultStopTimeout leaves a node daemon time to finish its requests.
	defaultStopTimeout = 10 * time.Second
)

// ErrStopped says that the group takes no more children.
var ErrStopped = errors.New("process group is stopped")

// Spec describes one child.
type Spec struct {
	Name string // for status, logs and errors; unique in its group
	Path string
	Args []string // without the program's name
	Env  []string // nil: this process's own
	// NetNS is the path of the network namespace to run in. Empty: this process's.
	NetNS string
	// Log receives stdout and stderr. If several children share it, it must be safe
	// for concurrent use. A failing Log does not disturb the child. May be nil.
	Log io.Writer
	// Restart says that the child is started again whenever it ends.
	Restart bool
	// Ready blocks until the child serves, or ctx ends. May be nil. It is asked at
	// Start only; after a restart the child's clients find out themselves.
	Ready func(ctx context.Context) error
	// StopTimeout is how long it has between SIGTERM and SIGKILL. Zero: 10 s.
	StopTimeout time.Duration
}

// State is what a child is doing.
type State string

// The states of a child.
const (
	Starting State = "Starting" // not forked yet
	Running  State = "Running"
	Waiting  State = "Waiting" // dead, to be started again
	Ended    State = "Ended"   // for good
)

// Status is one child at one moment.
type Status struct {
	Name     string
	State    State
	PID      int       // 0 unless Running
	Since    time.Time // when it came to its state
	Restarts int
	LastExit string    // how it ended last, empty if it never did
	ExitedAt time.Time // when it ended last
}

// Exit is one end of a child.
type Exit struct {
	Name string
	// PID is 0 if the child could not even be started.
	PID int
	// Err is nil for exit status 0.
	Err error
	// Stopping says that the group wanted it.
	Stopping bool
	// Restart is after how long the child is started again; negative for never.
	Restart time.Duration
}

// Group is a set of children that live and die together.
type Group struct {
	onExit   func(Exit)
	onChange func()

	mu       sync.Mutex
	children []*child // in start order
	stopped  bool
}

// New returns an empty group. onExit is told of every end of a child, from the child's
// own goroutine, which waits for it.
func New(onExit func(Exit)) *Group { return &Group{onExit: onExit, onChange: func() {}} }

// Watch has onChange called after each change of a Status, from the child's own goroutine, which
// waits for it. It comes before the first Start.
func (g *Group) Watch(onChange func()) { g.onChange = onChange }

// Start starts a child and returns when it is ready. If it ends before, or is not ready
// after 30 s or when ctx ends, it is stopped and the error shows the end of its log. ctx
// does not bound the child's life.
func (g *Group) Start(ctx context.Context, spec Spec) error {
	c := newChild(spec, g.onChange)
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return ErrStopped
	}
	g.children = append(g.children, c)
	go c.supervise(g.onExit)
	g.mu.Unlock()

	err := c.awaitReady(ctx)
	if err == nil {
		return nil
	}
	c.shutdown(ctx)
	g.mu.Lock()
	g.children = slices.DeleteFunc(g.children, func(other *child) bool { return other == c })
	g.mu.Unlock()
	if tail := c.tail.String(); tail != "" {
		return fmt.Errorf("starting %s: %w; its log ends with:\n%s", spec.Name, err, tail)
	}
	return fmt.Errorf("starting %s: %w", spec.Name, err)
}

// Status returns all children in start order.
func (g *Group) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Status, len(g.children))
	for i, c := range g.children {
		all[i] = c.current()
	}
	return all
}

// Stop ends all children in reverse start order and returns when none is left, and no
// process of their process groups either. When ctx ends, those that remain are killed
// at once. The group cannot be used again; a second Stop waits like the first.
func (g *Group) Stop(ctx context.Context) {
	g.mu.Lock()
	g.stopped = true
	children := slices.Clone(g.children)
	g.mu.Unlock()
	for _, c := range slices.Backward(children) {
		c.shutdown(ctx)
	}
}
