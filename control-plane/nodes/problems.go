package nodes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// updateTakes is longer than a node has two daemons while one is updated: the chart gives the
	// old one 40 s to end, and Kubernetes looks some time before whether the new one is ready.
	updateTakes = 2 * time.Minute
	// refusalsMost, storesMost, destinationsMost and wordsMost are as much as a daemon tells; a node may say anything.
	refusalsMost     = 20
	storesMost       = 20
	destinationsMost = 20
	wordsMost        = 512
	// nameMost is how much is shown of a name or an address.
	nameMost = 256
)

// Daemon is one of several that have a node's name.
type Daemon struct {
	// Address is where other nodes reach it.
	Address string
	// Process is what it calls itself, or else Address.
	Process string
	Version string
}

// Twins are the daemons of one name, if there have been several for longer than an update takes.
type Twins struct {
	Since time.Time
	// Daemons has the newest last. It is the one that counts.
	Daemons []Daemon
}

// Twins returns those that there are, by node. They would say two things of one node, and what is
// for one of them the other may get.
func (s *Server) Twins(now time.Time) map[string]Twins {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Twins{}
	for node, of := range s.joined {
		if len(of) < 2 || now.Sub(of[1].since) <= updateTakes {
			continue
		}
		t := Twins{Since: of[1].since}
		for _, st := range of {
			t.Daemons = append(t.Daemons, Daemon{Address: shown(st.register.GetPeerAddress(), nameMost),
				Process: shown(st.name, nameMost), Version: shown(st.register.GetVersion(), nameMost)})
		}
		all[node] = t
	}
	return all
}

// refuses takes a daemon's word on what its gateways refuse.
func (s *Server) refuses(st *stream, m *nodeapi.GatewayRefusals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.refused = m
}

// Refusals are what gateways have refused of what their nodes' daemons told them, as long as they
// have taken nothing since and the daemons are connected.
func (s *Server) Refusals() []routing.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := routing.Problems{}
	for node, of := range s.joined {
		for _, st := range of {
			told := st.refused.GetRefusals()
			for _, r := range told[:min(len(told), refusalsMost)] {
				function, message := refusal(r)
				found.Add(function, message, node)
			}
			if n := st.refused.GetMore(); n > 0 {
				found.Add(
					"", fmt.Sprintf("gateways there refused %d more: the log of headstart-node says what", n), node,
				)
			}
		}
	}
	return found.Sorted()
}

// refusal is what a refusal is about and says. One without a type is no refusal, but what the gateway's
// program cannot do.
func refusal(r *nodeapi.GatewayRefusal) (function, message string) {
	if r.GetTypeUrl() == "" {
		return "", "a gateway there has a problem: " + cmp.Or(shown(r.GetWords(), wordsMost), "it does not say which")
	}
	what := r.GetTypeUrl()[strings.LastIndexByte(r.GetTypeUrl(), '.')+1:]
	names := strings.Join(r.GetResources(), ", ")
	if len(r.GetResources()) == 1 {
		function = shown(platform.AssignedTo(names), nameMost)
	}
	words := cmp.Or(shown(r.GetWords(), wordsMost), "without a reason")
	return function, strings.TrimRight(fmt.Sprintf("a gateway there refused %s %s", shown(what, nameMost), shown(names, 3*nameMost)), " ") + ", and keeps what it has: " + words
}

// StoreProblem is a store that a node cannot use.
type StoreProblem struct{ Store, Message string }

// lacks takes a daemon's word on the stores that it cannot use.
func (s *Server) lacks(st *stream, m *nodeapi.StoreProblems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.stores = m
}

// StoreProblems are the stores that nodes cannot use, by node, as their newest daemons say.
func (s *Server) StoreProblems() map[string][]StoreProblem {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]StoreProblem{}
	for node, of := range s.joined {
		told := of[len(of)-1].stores.GetProblems()
		for _, p := range told[:min(len(told), storesMost)] {
			all[node] = append(all[node], StoreProblem{Store: shown(p.GetStore(), nameMost), Message: shown(p.GetMessage(), wordsMost)})
		}
	}
	return all
}

// DestinationProblem is a destination that a node cannot connect to.
type DestinationProblem struct{ Destination, Message string }

// misses takes a daemon's word on the destinations that it cannot connect to.
func (s *Server) misses(st *stream, m *nodeapi.DestinationProblems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.unreached = m
}

// DestinationProblems are the destinations that nodes cannot connect to, by node, as their newest daemons say.
func (s *Server) DestinationProblems() map[string][]DestinationProblem {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]DestinationProblem{}
	for node, of := range s.joined {
		told := of[len(of)-1].unreached.GetProblems()
		for _, p := range told[:min(len(told), destinationsMost)] {
			all[node] = append(all[node], DestinationProblem{
				Destination: shown(p.GetDestination(), nameMost), Message: shown(p.GetMessage(), wordsMost)})
		}
	}
	return all
}

// shown is what a node says, fit for a screen: not too long, on one line, and nothing that would
// move the cursor.
func shown(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "")
	return nodeapi.Printable(s)
}
