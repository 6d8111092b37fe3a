// Package event keeps what operators want to know of a function's recent past.
package event

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// perFunction is how many different events a function keeps: a screenful.
	perFunction = 20
	// functionsMost bounds the functions with events, deleted ones among them.
	functionsMost = 10_000
	// textMost is the longest reason, message or field kept, in bytes.
	textMost = 512
	// instancesMost bounds the instances whose last lines are kept: some MB at most.
	instancesMost = 1000
)

// Event is one thing that happened, perhaps several times.
type Event struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
	Node    string `json:"node,omitempty"`
	// Instance is the latest one that it happened to, if it is about instances.
	Instance string `json:"instance,omitempty"`
	// Log is what says why: the last lines of the function's log, or the runtime's words.
	Log   []string  `json:"log,omitempty"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Log holds events per function. Its zero value is ready to use.
type Log struct {
	mu         sync.Mutex
	byFunction map[string][]Event
	ended      []ending // the latest last
}

// ending is what an instance has left behind.
type ending struct {
	function, node, instance string
	log                      []string
}

// Add records an event of the function. The same reason, field, message and node
// again only counts; instance and log are the latest's.
func (l *Log) Add(function string, e Event) {
	e.Reason, e.Message, e.Field = clip(e.Reason), clip(e.Message), clip(e.Field)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byFunction == nil {
		l.byFunction = map[string][]Event{}
	}
	events, known := l.byFunction[function]
	if !known && len(l.byFunction) >= functionsMost {
		return
	}
	if e.Instance != "" {
		l.ended = append(l.ended, ending{function, e.Node, e.Instance, e.Log})
		l.ended = slices.Delete(l.ended, 0, max(len(l.ended)-instancesMost, 0))
		e.Log = nil // it is there, and bounded
	}
	e.Count, e.First, e.Last = 1, now, now
	if i := slices.IndexFunc(events, func(o Event) bool {
		return o.Reason == e.Reason && o.Field == e.Field && o.Message == e.Message && o.Node == e.Node
	}); i >= 0 {
		e.Count, e.First = events[i].Count+1, events[i].First
		events = slices.Delete(events, i, i+1)
	}
	if events = append(events, e); len(events) > perFunction {
		events = slices.Delete(events, 0, len(events)-perFunction)
	}
	l.byFunction[function] = events
}

// clip leaves no half character at the end.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), textMost)], "")
}

// Explain adds the last lines of an instance to the events that name it; node is who says so.
func (l *Log) Explain(node, instance string, log []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.ended {
		if e.instance == instance && e.node == node {
			l.ended[i].log = log
		}
	}
}

// LastLines are those of an instance that has ended, nil if none are known.
func (l *Log) LastLines(instance string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLines(instance)
}

// lastLines of the instance; the caller holds mu.
func (l *Log) lastLines(instance string) []string {
	for _, e := range slices.Backward(l.ended) {
		if e.instance == instance {
			return e.log
		}
	}
	return nil
}

// Of returns the function's events, the latest last. The caller must not change their logs.
func (l *Log) Of(function string) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := slices.Clone(l.byFunction[function])
	for i, e := range events {
		if e.Instance != "" {
			events[i].Log = l.lastLines(e.Instance)
		}
	}
	return events
}

// Forget drops a deleted function's events.
func (l *Log) Forget(function string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byFunction, function)
	l.ended = slices.DeleteFunc(l.ended, func(e ending) bool { return e.function == function })
}
