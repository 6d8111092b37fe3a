package trace

import "fmt"

// Absence is why a trace cannot be shown.
type Absence string

// The absences.
const (
	// Unknown: nothing was heard of it.
	Unknown Absence = "unknown"
	// NotSampled: the request came by, and was to leave no spans.
	NotSampled Absence = "not sampled"
	// NotKept: there was one, and newer ones took its place.
	NotKept Absence = "not kept"
)

// Error is for who asked for the trace.
func (a Absence) Error() string {
	switch a {
	case NotSampled:
		return "this request was not sampled, so it has no trace: its caller's traceparent ended in -00, or the gateway samples a part of the requests (--trace-sampling, or the mesh's Telemetry)"
	case NotKept:
		return fmt.Sprintf("this trace is not kept any more: the newest %d are, and at most %d MiB of them; --otlp-forward keeps them elsewhere", tracesLimit, memoryLimit>>20)
	}
	return "no such trace; the latest are kept, and a request's id is in its answer's x-headstart-request header; `headstart trace` lists them, and what was not sampled has none"
}

// absentMost is how many ids are remembered: ten times the traces that are kept, in about 2 MiB.
const absentMost = 10 * tracesLimit

// absences remembers why the latest ids that cannot be shown are not. Its zero value is ready to
// use.
type absences struct {
	why    map[string]Absence
	ids    []string // a ring of absentMost
	oldest int
	// unsampled counts the requests that were not sampled.
	unsampled int
}

func (a *absences) add(id string, why Absence) {
	if a.why == nil {
		a.why = map[string]Absence{}
	}
	if _, known := a.why[id]; known {
		a.why[id] = why
		return
	}
	if why == NotSampled {
		a.unsampled++
	}
	a.why[id] = why
	if len(a.ids) < absentMost {
		a.ids = append(a.ids, id)
		return
	}
	delete(a.why, a.ids[a.oldest])
	a.ids[a.oldest] = id
	a.oldest = (a.oldest + 1) % absentMost
}

// Unsampled tells the store of a request that leaves no spans.
func (s *Store) Unsampled(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if requestID.MatchString(request) {
		s.absent.add(request, NotSampled)
	}
}

// Absent says why Get does not return a trace.
func (s *Store) Absent(id string) Absence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why, known := s.absent.why[id]; known {
		return why
	}
	return Unknown
}
