package node

import (
	"log/slog"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// Hosts has sandboxes find functions by their names at the node's own gateway.
type Hosts interface{ Resolve(names []string) error }

// Local is a node that starts its sandboxes itself.
type Local struct {
	common
	sandboxes *sandboxes.Local
	hosts     Hosts
	log       *slog.Logger
}

// NewLocal joins the parts with the node's own sandboxes.
func NewLocal(p Parts, s *sandboxes.Local, h Hosts, log *slog.Logger) *Local {
	return &Local{common{p}, s, h, log}
}

// Functions implements uplink.Handler.
func (n *Local) Functions(m *nodeapi.Functions) {
	n.common.Functions(m)
	var names []string
	for _, f := range m.GetFunctions() {
		names = append(names, f.GetHosts()...)
	}
	if err := n.hosts.Resolve(names); err != nil {
		n.log.Warn("functions do not find each other by their hosts", "error", err)
	}
}

// Start implements uplink.Handler.
func (n *Local) Start(m *nodeapi.StartInstance) { n.sandboxes.Start(m) }

// Stop implements uplink.Handler.
func (n *Local) Stop(m *nodeapi.StopInstance) { n.sandboxes.Stop(m.GetId(), m.GetGrace().AsDuration()) }

// Withdraw implements uplink.Handler.
func (n *Local) Withdraw(m *nodeapi.WithdrawInstance) { n.sandboxes.Withdraw(m.GetId()) }

// Instances implements uplink.Handler: the node knows its own.
func (n *Local) Instances(*nodeapi.Instances) {}

// Register implements Node.
func (n *Local) Register() *nodeapi.Register {
	r := n.common.Register()
	r.Instances = n.sandboxes.Statuses()
	return r
}
