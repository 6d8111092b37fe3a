package nodes

import (
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// poolsMost and pooledMost are as many destinations, and functions of one, as are shown of a node.
const (
	poolsMost  = 256
	pooledMost = 64
)

// Pool is what a node has of unused connections with a destination.
type Pool struct {
	Destination           string
	Held, Wanted, Allowed int
	Functions             []Pooled
}

// Pooled is what a function has of them. Setup and Oldest are 0 if they are not known.
type Pooled struct {
	Function      string
	Held, Wanted  int
	Setup, Oldest time.Duration
}

// holds takes a daemon's word on its unused connections.
func (s *Server) holds(st *stream, m *nodeapi.Unused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.unused = m
}

// Pools are the nodes' unused connections, by node, as their newest daemons say.
func (s *Server) Pools() map[string][]Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]Pool{}
	for node, of := range s.joined {
		told := of[len(of)-1].unused.GetDestinations()
		for _, u := range told[:min(len(told), poolsMost)] {
			p := Pool{Destination: shown(u.GetDestination(), nameMost), Held: int(u.GetHeld()), Wanted: int(u.GetWanted()),
				Allowed: int(u.GetAllowed())}
			for _, f := range u.GetFunctions()[:min(len(u.GetFunctions()), pooledMost)] {
				p.Functions = append(p.Functions, Pooled{Function: shown(f.GetName(), nameMost), Held: int(f.GetHeld()),
					Wanted: int(f.GetWanted()), Setup: f.GetSetup().AsDuration(), Oldest: f.GetOldest().AsDuration()})
			}
			all[node] = append(all[node], p)
		}
	}
	return all
}
