package trace

// What the tests of the bounds need to know.
const (
	TracesLimit     = tracesLimit
	SpansLimit      = spansLimit
	MemoryLimit     = memoryLimit
	ValueLimit      = valueLimit
	AttributesLimit = attributesLimit
	ForwardRequests = forwardRequests
	ForwardBytes    = forwardBytes
)

var Columns = columns

// Held returns the store's own account of itself.
func (s *Store) Held() (traces, ids, memory int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.traces), len(s.byID), s.memory
}

// Recent returns at most n summaries, of the newest trace first.
func (s *Store) Recent(n int) []Summary {
	s.mu.Lock()
	var known []record
	for e := s.order.Back(); e != nil && len(known) < n; e = e.Prev() {
		known = append(known, e.Value.(*record).copy())
	}
	s.mu.Unlock()
	summaries := make([]Summary, 0, len(known))
	for _, r := range known {
		summaries = append(summaries, r.ordered().Summary())
	}
	return summaries
}
