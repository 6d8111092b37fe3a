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
