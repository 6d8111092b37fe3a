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
)

// Event is one thing that happened, perhaps several times.
type Event struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Field   string    `json:"field,omitempty"`
	Node    string    `json:"node,omitempty"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Log holds events per function. Its zero value is ready to use.
type Log struct {
	mu         sync.Mutex
	byFunction map[string][]Event
}

// Add records an event of the function. The same reason, field, message and node
// again only counts.
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

// Of returns the function's events, the latest last.
func (l *Log) Of(function string) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.byFunction[function])
}

// Forget drops a deleted function's events.
func (l *Log) Forget(function string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byFunction, function)
}
