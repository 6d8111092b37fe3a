package relay

import (
	"context"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/accesslog"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// activeFor is how long a function counts as in use after the last word of it: twice
	// the interval at which gateways log a request that goes on.
	activeFor = 2 * time.Second
	// expireInterval is how late the end of that time may be noticed.
	expireInterval = 250 * time.Millisecond
)

// activity tells which functions are in use, and has their requests counted.
type activity struct {
	sink Activity
	sent *sent

	mu    sync.Mutex
	known map[string]bool
	last  map[string]time.Time // of functions in use
}

func newActivity(sink Activity, s *sent) *activity {
	return &activity{sink: sink, sent: s, last: map[string]time.Time{}}
}

// setFunctions replaces what is known. A function that is gone goes out of use by itself.
func (a *activity) setFunctions(functions []*nodeapi.Function) {
	known := make(map[string]bool, len(functions))
	for _, f := range functions {
		known[f.GetName()] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = known
}

// seen takes a batch of log entries. The sink is called under the lock, so that it hears
// of a function's changes in their order.
func (a *activity) seen(entries []accesslog.Entry) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, entry := range entries {
		if !a.known[entry.Function] {
			continue // what callers make up must not grow anything
		}
		if _, active := a.last[entry.Function]; !active {
			a.sink.Seen(entry.Function, true)
		}
		a.last[entry.Function] = now
		a.sent.add(entry)
	}
}

// expire tells of functions that have gone out of use, until ctx ends.
func (a *activity) expire(ctx context.Context) {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			a.expireAt(now)
		}
	}
}

func (a *activity) expireAt(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for function, last := range a.last {
		if now.Sub(last) >= activeFor {
			delete(a.last, function)
			a.sink.Seen(function, false)
		}
	}
}
