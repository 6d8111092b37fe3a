package connections

import (
	"sync"

	"github.com/headstart-mesh/headstart/shim/session"
)

// startsMost is how many functions and destinations a node knows the drivers of: as many as it has functions.
const startsMost = 10_000

// starts are what functions' drivers have asked for last, so that the next session is one that they can have. Its zero
// value is ready to use.
type starts struct {
	mu sync.Mutex
	of map[[2]string]session.Start // by function and destination
}

func (s *starts) note(function, destination string, start session.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || len(s.of) >= startsMost {
		s.of = map[[2]string]session.Start{} // they are learned again
	}
	s.of[[2]string{function, destination}] = start
}

// last also says whether anything is known.
func (s *starts) last(function, destination string) (session.Start, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, known := s.of[[2]string{function, destination}]
	return start, known
}
