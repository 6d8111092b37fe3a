package nodes

import "github.com/headstart-mesh/headstart/shim/nodeapi"

const (
	// volumesMost and troublesMost are as much as a daemon tells; a node may say anything.
	volumesMost  = 1024
	troublesMost = 4
	// sizeMost is more than a node has, and as little as can be added up.
	sizeMost = 1 << 50
)

// keeps takes a daemon's word on what it keeps.
func (s *Server) keeps(st *stream, m *nodeapi.Keeps) {
	m.Volumes = m.GetVolumes()[:min(len(m.GetVolumes()), volumesMost)]
	m.Problems = m.GetProblems()[:min(len(m.GetProblems()), troublesMost)]
	for i, p := range m.GetProblems() {
		m.Problems[i] = shown(p, wordsMost)
	}
	numbers := []*int64{&m.Room, &m.Bytes, &m.Limit}
	for _, v := range m.GetVolumes() {
		numbers = append(numbers, &v.Bytes)
	}
	for _, n := range numbers {
		*n = min(max(*n, 0), sizeMost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.kept = m
}

// Keeps is what nodes keep, by node, as their newest daemons say. Nodes whose daemons say nothing are left out. Nobody
// changes it.
func (s *Server) Keeps() map[string]*nodeapi.Keeps {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]*nodeapi.Keeps{}
	for node, of := range s.joined {
		if kept := of[len(of)-1].kept; kept != nil {
			all[node] = kept
		}
	}
	return all
}
