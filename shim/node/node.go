// Package node joins the parts of a node's daemon: what the control plane says (uplink.Handler) goes
// to them, and what they see of requests goes to it. Local and Cluster are the two platforms; what is
// the same on both is common.
package node

import (
	"crypto/ed25519"
	"time"

	"github.com/headstart-mesh/headstart/shim/curator"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/probe"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/stores"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// Node is a node of either platform.
type Node interface {
	uplink.Handler
	// Register is what the node says of itself.
	Register() *nodeapi.Register
	// Signals is what there was of requests since it was asked for last.
	Signals(now time.Time) *nodeapi.Signals
}

// Parts are what a node is made of on each platform.
type Parts struct {
	Functions *ingress.Functions
	Stores    *stores.Stores
	// Destinations takes the control plane's list of destinations, and how many connections may wait.
	Destinations interface {
		Set(all []*nodeapi.Destination)
		Allow(m *nodeapi.Allowances)
	}
	// Workflows learns which functions there are.
	Workflows interface{ Set(all []*nodeapi.Function) }
	// Observed forgets what it has of functions that are not observed.
	Observed interface{ Keep(all []*nodeapi.Function) }
	Ingress  *ingress.Ingress
	Relay    *relay.Relay
	Triggers *trigger.Set
	Prober   *probe.Prober
	Peers    *peers.Peers
	Curator  *curator.Curator
	// Register is what the node says of itself, without its instances.
	Register func() *nodeapi.Register
}

// common is what is the same on both platforms.
type common struct{ parts Parts }

// Functions implements uplink.Handler.
func (c common) Functions(m *nodeapi.Functions) {
	// Stores first: a function that is known must find its store.
	c.parts.Stores.Set(m.GetStores())
	c.parts.Destinations.Set(m.GetDestinations())
	c.parts.Functions.Set(m.GetFunctions())
	c.parts.Workflows.Set(m.GetFunctions())
	c.parts.Observed.Keep(m.GetFunctions())
	c.parts.Relay.SetFunctions(m.GetFunctions())
}

// Expect implements uplink.Handler.
func (c common) Expect(m *nodeapi.Expect) { c.parts.Ingress.Expect(m) }

// Keys implements uplink.Handler.
func (c common) Keys(m *nodeapi.Keys) {
	var keys []ed25519.PublicKey
	for _, key := range m.GetKeys() {
		keys = append(keys, key)
	}
	c.parts.Ingress.Trust(keys)
	c.parts.Peers.Trust(keys)
}

// Confirm implements uplink.Handler.
func (c common) Confirm(m *nodeapi.Confirm) { c.parts.Relay.Confirm(m.GetId()) }

// CacheCall implements uplink.Handler.
func (c common) CacheCall(m *nodeapi.CacheCall, answer func(*nodeapi.CacheAnswer)) {
	c.parts.Curator.Call(m, answer)
}

// Triggers implements uplink.Handler.
func (c common) Triggers(m *nodeapi.Triggers) { c.parts.Triggers.Set(m.GetTriggers()) }

// Neighbours implements uplink.Handler.
func (c common) Neighbours(m *nodeapi.Neighbours) {
	var peers []probe.Peer
	for _, n := range m.GetNeighbours() {
		peers = append(peers, probe.Peer{Name: n.GetNode(), Address: n.GetPeerAddress()})
	}
	c.parts.Prober.SetPeers(peers)
}

// Site implements uplink.Handler.
func (c common) Site(m *nodeapi.Site) { c.parts.Peers.SetSite(m) }

// Allow implements uplink.Handler.
func (c common) Allow(m *nodeapi.Allowances) { c.parts.Destinations.Allow(m) }

// Passes implements uplink.Handler.
func (c common) Passes(m *nodeapi.Passes) { c.parts.Peers.SetPasses(m) }

// Register implements Node.
func (c common) Register() *nodeapi.Register {
	c.parts.Prober.Plan.Again() // the control plane may know nothing
	return c.parts.Register()
}

// Signals implements Node: of requests that passed the daemon, and of those that gateways report to it.
func (c common) Signals(now time.Time) *nodeapi.Signals {
	m := c.parts.Ingress.Signals(now)
	m.Routed = c.parts.Relay.Signals(now)
	return m
}
