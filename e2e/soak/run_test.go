//go:build integration

package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// run is a case on its way.
type run struct {
	plan.Case
	w *world

	tries, placements, version, answered atomic.Int64
	delivered, release, halfRead         chan struct{}
	proceed                              func()      // closes halfRead
	alone                                atomic.Bool // a second request under the id came after the first
	floor                                int         // the version that a shared object has at least

	over              chan struct{} // closed when the client has its answer, or has gone
	handlers, placing sync.WaitGroup

	mu        sync.Mutex
	ended     bool // no handler or placement may begin
	entered   int
	seen      []report
	ids       map[string]bool // under which functions get it
	known     map[string]bool // digests of the input's versions
	instances []placed
	wrong     []error
}

// placed is an instance that was started for the case.
type placed struct {
	on  *node
	id  string
	pod *nodeapi.Pod
}

// complain notes what is wrong beside the answer.
func (r *run) complain(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, err)
}

// expect notes that the input may be content.
func (r *run) expect(content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[digest(content)] = true
}

// adopt notes an instance of the case's.
func (r *run) adopt(on *node, id string, pod *nodeapi.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = append(r.instances, placed{on, id, pod})
}

// enterPlacement begins one, as long as the case is not over.
func (r *run) enterPlacement() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.placing.Add(1)
	}
	return !r.ended
}

// sparedLater tells whether a request of whose node the daemon has died is placed on the other
// one then.
func (r *run) sparedLater() bool { return r.Variant&8 != 0 }

// traceparent is that of what the node itself makes requests of, and gives ids to: its trace
// has the case's id (W3C trace context), and is not sampled.
func (r *run) traceparent() string { return "00-" + r.ID + "-" + r.ID[:16] + "-00" }

// called notes an id that a node has given to the request.
func (r *run) called(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id] = true
}

// stage tells how far the case is.
func (r *run) stage() (delivered, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entered > 0, r.ended
}

// pod is the case's newest instance on a node.
func (r *run) pod(on *node) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.instances {
		if p.on == on {
			id, ok = p.id, true
		}
	}
	return id, ok
}

// enter counts one delivery, as long as the case is not over, and returns which one it is,
// from 1 on.
func (r *run) enter() (nth int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return 0
	}
	if r.entered++; r.entered == 1 {
		close(r.delivered)
	}
	r.handlers.Add(1)
	return r.entered
}

func (r *run) saw(rep report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, rep)
}

// function is the name of the case's.
func (r *run) function() string {
	switch {
	case r.Way == plan.Entry:
		return r.queue().function
	case r.Fault == plan.StoreStallsForEver:
		return "hasty"
	case r.Fault == plan.NodeDies:
		return "mortal-" + string(r.Input)
	case r.Fault == plan.BufferFull:
		return "wide-" + string(r.Input)
	case r.Input == plan.Stream:
		return string(plan.HTTP)
	}
	return string(r.Input)
}

// do runs a case to its end and returns what was wrong, and what became of it.
func (w *world) do(number int) (outcome, plan.Case, error) {
	c := w.plan.Case(number)
	r := &run{Case: c, w: w, delivered: make(chan struct{}), release: make(chan struct{}), halfRead: make(chan struct{}), over: make(chan struct{}),
		known: map[string]bool{}, ids: map[string]bool{c.ID: c.Way == plan.Gateway}}
	r.proceed = sync.OnceFunc(func() { close(r.halfRead) })
	w.mu.Lock()
	w.runs[r.ID] = r
	w.mu.Unlock()
	if r.Fault == plan.NodeDies {
		w.dying.Lock()
		defer w.dying.Unlock()
	}
	if r.Fault == plan.BufferFull {
		defer w.flooding.begin()()
	}
	died, restarted, flooded := w.deaths.since(), w.restarts.since(), w.flooding.since()
	if err := r.prepare(); err != nil {
		return outcome{}, c, fmt.Errorf("storing the input: %w", err)
	}
	o := r.exchange()
	r.finish()
	return o, c, r.judge(o, facts{died: died(), restarted: restarted(), flooded: flooded()})
}

// prepare stores the input, and sends the hint.
func (r *run) prepare() (err error) {
	switch {
	case r.Fault == plan.Shares:
		r.floor, err = r.putShared()
	case r.Fault == plan.TooLarge || r.Fault == plan.BufferFull || r.Fault == plan.Foreign:
		r.version.Store(1)
		r.expect(r.Content(1))
	default:
		err = r.put(1)
	}
	if err != nil || !r.Hinted || r.Fault == plan.IDMalformed {
		return err
	}
	return r.hint()
}

// hint sends what the filter sends ahead of the request.
func (r *run) hint() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://hints/", nil)
	if err != nil {
		return err
	}
	req.Header, _ = r.request(r.ID, r.function())
	key, err := os.ReadFile(r.w.edge.socket("gateway/key"))
	if err != nil {
		return fmt.Errorf("reading the gateways' key: %w", err)
	}
	req.Header.Set("x-headstart-key", string(key))
	answer, err := r.w.hints.Do(req)
	if err != nil {
		return fmt.Errorf("sending the hint: %w", err)
	}
	return answer.Body.Close()
}

// exchange sends the request, and the other one under its id if there is one.
func (r *run) exchange() outcome {
	id := r.ID
	if r.Fault == plan.IDMalformed {
		id = strings.ToUpper(id[:31]) + "G"
	}
	switch {
	case r.Way == plan.Entry:
		return r.enqueue()
	case r.Fault != plan.Duplicate:
		return r.send(id, r.function())
	}
	answered := make(chan outcome, 1)
	release := sync.OnceFunc(func() { close(r.release) })
	go func() {
		o := r.send(id, r.function())
		release() // for the second, if the first has failed before
		answered <- o
	}()
	select {
	case o := <-answered:
		return o
	case <-r.delivered:
	}
	other := r.function()
	if r.Variant%2 == 0 {
		other = "none"
	}
	second := r.send(id, other)
	select {
	case o := <-answered: // and the second may be one by itself
		r.alone.Store(true)
		return o
	default:
	}
	if second.problem.Title != "DuplicateRequest" || second.status != http.StatusConflict {
		r.complain(fmt.Errorf("the second request under the id of one that is under way: %s", second))
	}
	release()
	return <-answered
}

// finish waits until nobody works on the case any more, and takes away what was made for it.
func (r *run) finish() {
	close(r.over)
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	idle := make(chan struct{})
	go func() { r.handlers.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(patience):
		r.complain(errors.New("the function still waits for a request that is over"))
		<-idle
	}
	r.placing.Wait()
	for _, p := range r.instances { // nobody adds to them any more
		r.w.cp.removePod(p.on.name, p.id)
		if !r.Hidden {
			r.complain(r.w.cp.gone(p))
		}
	}
	r.forgetObject()
}

// gone tells a node's daemon that an instance's sandbox is no more.
func (c *controlPlane) gone(p placed) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	shims, err := c.shims(p.on)
	if err != nil {
		return err
	}
	for {
		// It waits for a daemon that is away; one that is killed meanwhile has the next asked.
		_, err := shims.Gone(ctx, &nodeapi.GoneRequest{Sandbox: p.id, Pod: p.pod}, grpc.WaitForReady(true))
		if status.Code(err) != codes.Unavailable {
			return err
		}
	}
}
