package budget

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

// dealEvery is how soon a report is answered: often enough for daemons that report every 2 s, and seldom enough for a
// thousand of them.
const dealEvery = 500 * time.Millisecond

// Nodes are where allowances go.
type Nodes interface {
	SendTo(node, process string, m *nodeapi.ControlMessage) error
}

// Server deals while its control plane is in charge.
type Server struct {
	nodes    Nodes
	inCharge func() bool
	budgets  map[string]int

	mu     sync.Mutex
	dealer *dealer // nil: the control plane is not in charge
}

// NewServer returns a server of the destinations with the origin node. inCharge is asked before each deal; nil: always.
func NewServer(ds destinations.Destinations, nodes Nodes, inCharge func() bool) *Server {
	s := &Server{nodes: nodes, inCharge: inCharge, budgets: map[string]int{}}
	for _, d := range ds {
		if d.Origin == destinations.Node {
			s.budgets[d.Name] = d.Unused
		}
	}
	return s
}

// Begin has reports count from now on: the control plane takes charge. Nodes hear of that afterwards.
func (s *Server) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.budgets) == 0 {
		return
	}
	s.dealer = newDealer(s.budgets, time.Now())
}

// Run deals until ctx ends; Begin comes before it.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(dealEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.dealer = nil
			s.mu.Unlock()
			return
		case <-tick.C:
			s.deal()
		}
	}
}

func (s *Server) deal() {
	s.mu.Lock()
	var told []word
	if s.dealer != nil && (s.inCharge == nil || s.inCharge()) {
		told = s.dealer.Deal(time.Now())
	}
	s.mu.Unlock()
	for _, t := range told {
		// A daemon that is not there reports when it is back. Until then what it was to get counts as if it had it.
		_ = s.nodes.SendTo(t.To.Node, t.To.Process, &nodeapi.ControlMessage{
			Kind: &nodeapi.ControlMessage_Allowances{Allowances: t.Allowances}})
	}
}

// Unused takes a daemon's word. One that is not its node's newest gets nothing more.
func (s *Server) Unused(node, process string, newest bool, m *nodeapi.Unused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dealer == nil {
		return
	}
	if !newest {
		m = proto.CloneOf(m) // others look at it
		for _, u := range m.GetDestinations() {
			if u != nil {
				u.Wanted = 0
			}
		}
	}
	s.dealer.Report(daemonID{node, process}, m, time.Now())
}

// Went notes that a daemon's stream has ended.
func (s *Server) Went(node, process string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dealer != nil {
		s.dealer.Left(daemonID{node, process})
	}
}
