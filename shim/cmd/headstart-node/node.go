package main

import (
	"context"
	"log/slog"

	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/probe"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// node does what the control plane says (uplink.Handler).
type node struct {
	functions *ingress.Functions
	stores    *stores
	uplink    *uplink.Uplink
	ingress   *ingress.Ingress
	streams   *streams
	triggers  *trigger.Set
	prober    *probe.Prober
	sockets   *functionapi.Server

	jobs *job.Set

	inputs *inputs

	// process names the daemon where a node may have two of them for a while.
	process string

	local *sandboxes.Local // nil where the platform runs the instances
	// resolve has instances find the functions by these names at the node's own gateway; nil
	// where the platform has names for them.
	resolve func(names []string)

	// Both nil where the node itself runs the instances.
	kubelet *sandboxes.Kubelet
	relay   *relay.Relay
}

func (n *node) Functions(m *nodeapi.Functions) {
	// Stores first: a function that is known must find its store.
	n.stores.set(m.GetStores())
	n.streams.set(m.GetStores())
	n.functions.Set(m.GetFunctions())
	if n.resolve != nil {
		n.resolve(hosts(m.GetFunctions()))
	}
	if n.relay != nil {
		n.relay.SetFunctions(m.GetFunctions())
	}
}

// hosts are the names that functions are called by.
func hosts(functions []*nodeapi.Function) (names []string) {
	for _, f := range functions {
		names = append(names, f.GetHosts()...)
	}
	return names
}

func (n *node) Start(m *nodeapi.StartInstance) {
	if n.local != nil {
		n.local.Start(m)
	}
}

func (n *node) Stop(m *nodeapi.StopInstance) {
	if n.local != nil {
		n.local.Stop(m.GetId(), m.GetGrace().AsDuration())
	}
}

func (n *node) Instances(m *nodeapi.Instances) {
	if n.kubelet != nil {
		n.kubelet.Instances(m)
	}
}

// awaitJob waits for the control plane's word of a pod that says it is a job. The jobs that the
// node itself runs are known before they are made.
func (n *node) awaitJob(ctx context.Context, sandbox string) error {
	if n.kubelet == nil || !n.kubelet.SaysJob(sandbox) {
		return nil
	}
	return n.jobs.Await(ctx, sandbox)
}

// sandboxes is what the set of the node's sandboxes is made of.
func (n *node) sandboxes(c config, otlp string, log *slog.Logger) sandboxes.Config {
	return sandboxes.Config{Dir: c.state("instances"), Memory: n.inputs.memory, Succeeds: n.inputs.succeeds,
		Providers: []sandboxes.Provider{n.sockets}, Jobs: n.jobs, OTLP: otlp, Log: log}
}

func (n *node) Triggers(m *nodeapi.Triggers) { n.triggers.Set(m.GetTriggers()) }

func (n *node) Neighbours(m *nodeapi.Neighbours) {
	n.prober.SetPeers(peersOf(m))
}

func (n *node) Expect(m *nodeapi.Expect) {
	if n.kubelet != nil {
		n.kubelet.Expect(m)
	}
	n.ingress.Expect(m)
}

// register is what the node says of itself. What a platform runs, the platform knows.
func (n *node) register(c config) *nodeapi.Register {
	r := &nodeapi.Register{Version: nodeapi.Version, PeerAddress: c.peerListen, Process: n.process, Triggers: true, Probes: true, IngressSocket: c.gateway("ingress.sock"), HintSocket: c.gateway("hints.sock")}
	if n.local != nil {
		r.Instances = n.local.Statuses()
	}
	return r
}
