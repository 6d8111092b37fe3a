package trace

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// What a Store keeps. The oldest trace goes first: of those that have a node's span, or of the others, whichever
// are more. Anybody who reaches the port can send the others.
const (
	// tracesLimit is how many traces are kept: the last minutes of a busy gateway, a
	// whole afternoon of somebody who tries things out.
	tracesLimit = 1000
	// spansLimit is how many spans one trace keeps. A cold request has about 15; a
	// client that puts all of its requests under one traceparent hits the limit.
	spansLimit = 512
	// memoryLimit bounds all traces together, in bytes. It is more than the largest
	// single trace, spansLimit times some 18 KiB.
	memoryLimit = 64 << 20
)

// Store is an OTLP collector for traces with a bounded memory. It is safe for
// concurrent use.
type Store struct {
	collectorpb.UnimplementedTraceServiceServer

	mu     sync.Mutex
	traces map[string]*record
	order  *list.List        // of *record, the oldest first
	byID   map[string]string // request id to trace id
	memory int               // bytes of all traces, about
	// others and othersMemory are of those of the traces in which no node has a span.
	others, othersMemory int
	absent               absences
}

// record is one trace as it comes in.
type record struct {
	id      string
	place   *list.Element
	spans   map[string]Span
	ids     []string // its keys in Store.byID
	memory  int
	dropped int
	other   bool
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{traces: map[string]*record{}, order: list.New(), byID: map[string]string{}}
}

// Export takes spans in. Spans that are none are counted in the answer, as OTLP asks
// for, and never fail the request: a sender would send the good ones again.
func (s *Store) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	var rejected int64
	var reason string
	_, err := peertls.Peer(ctx)
	node := err == nil
	for _, resource := range req.GetResourceSpans() {
		service := serviceOf(resource.GetResource())
		for _, scope := range resource.GetScopeSpans() {
			for _, p := range scope.GetSpans() {
				id, span, size, err := spanOf(service, p)
				if err != nil {
					rejected, reason = rejected+1, err.Error()
					continue
				}
				s.add(id, span, size+len(service), node)
			}
		}
	}
	resp := &collectorpb.ExportTraceServiceResponse{}
	if rejected > 0 {
		resp.PartialSuccess = &collectorpb.ExportTracePartialSuccess{RejectedSpans: rejected, ErrorMessage: reason}
	}
	return resp, nil
}

func (s *Store) add(id string, span Span, size int, node bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.traces[id]
	if r == nil {
		r = &record{id: id, spans: map[string]Span{}, other: true}
		r.place = s.order.PushBack(r)
		s.traces[id] = r
		s.others++
	}
	if node && r.other {
		r.other = false
		s.others--
		s.othersMemory -= r.memory
	}
	if _, ok := r.spans[span.ID]; ok {
		return // sent twice, as a sender does that missed the answer
	}
	if len(r.spans) == spansLimit {
		r.dropped++
		return
	}
	r.spans[span.ID] = span
	if id := span.request(); id != "" && s.byID[id] == "" {
		s.byID[id] = r.id
		r.ids = append(r.ids, id)
		size += 2 * len(id)
	}
	r.memory += size
	s.memory += size
	if r.other {
		s.othersMemory += size
	}
	for {
		switch {
		case len(s.traces) > tracesLimit:
			s.evict(s.oldest(2*s.others > len(s.traces)))
		case s.memory > memoryLimit:
			s.evict(s.oldest(2*s.othersMemory > s.memory))
		default:
			return
		}
	}
}

// oldest is the oldest of the others, or of those that have a node's span; there must be one.
func (s *Store) oldest(other bool) *record {
	e := s.order.Front()
	for e.Value.(*record).other != other {
		e = e.Next()
	}
	return e.Value.(*record)
}

func (s *Store) evict(r *record) {
	s.order.Remove(r.place)
	delete(s.traces, r.id)
	s.absent.add(r.id, NotKept)
	for _, id := range r.ids {
		delete(s.byID, id)
		s.absent.add(id, NotKept)
	}
	s.memory -= r.memory
	if r.other {
		s.others--
		s.othersMemory -= r.memory
	}
}

// Get returns a trace by its own id, or the part of a trace that belongs to a request
// by the request's id, which is the invocation's as well. The caller must not change attributes.
func (s *Store) Get(id string) (Trace, bool) {
	s.mu.Lock()
	r, whole := s.traces[id]
	if !whole {
		r = s.traces[s.byID[id]]
	}
	if r == nil {
		s.mu.Unlock()
		return Trace{}, false
	}
	known := r.copy()
	s.mu.Unlock()
	t := known.ordered()
	if !whole {
		t = t.Of(id)
	}
	return t, true
}

// copy returns what a reader needs without the lock: spans never change.
func (r *record) copy() record {
	return record{id: r.id, spans: maps.Clone(r.spans), dropped: r.dropped}
}

func (r *record) ordered() Trace {
	t := New(r.id, slices.Collect(maps.Values(r.spans)))
	t.Dropped = r.dropped
	return t
}
