// Package pass signs what a node shows to the other nodes of its site to get objects: the namespaces whose functions
// may be on the node, or may be called from there. So a node that somebody has taken over gets objects of these only.
package pass

import (
	"crypto/ed25519"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

// Nodes are those that can be told something.
type Nodes interface {
	// Connected returns the registrations of the nodes that are connected.
	Connected() map[string]*nodeapi.Register
	// Send sends one message to one node.
	Send(node string, m *nodeapi.ControlMessage) error
}

// Teller keeps nodes told of their passes. Its methods may be called at the same time.
type Teller struct {
	nodes Nodes
	key   ed25519.PrivateKey // nil: nothing is signed, and no node has a pass

	mu   sync.Mutex
	told map[string]told // by node
}

type told struct {
	namespaces []string
	at         time.Time
}

// NewTeller returns one that has told nobody anything.
func NewTeller(n Nodes, key ed25519.PrivateKey) *Teller {
	return &Teller{nodes: n, key: key, told: map[string]told{}}
}

// Joined says that a node's daemon is connected, perhaps again: it knows nothing.
func (t *Teller) Joined(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, node)
}

// Tell says, by node, which namespaces' objects it may have, sorted. It tells the nodes for which that has changed,
// and those whose passes are to be renewed.
func (t *Teller) Tell(tenants map[string][]string, now time.Time) {
	if t.key == nil {
		return
	}
	connected := t.nodes.Connected()
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, r := range connected {
		next, last := tenants[node], t.told[node]
		if !r.GetShares() || slices.Equal(next, last.namespaces) && (len(next) == 0 || now.Sub(last.at) < capability.PassRenewal) {
			continue
		}
		m := &nodeapi.Passes{}
		for _, namespace := range next {
			m.Passes = append(m.Passes, &nodeapi.Pass{Namespace: namespace, Token: capability.Sign(
				t.key, capability.Pass{Node: node, Namespace: namespace}, now.Add(capability.PassLife))})
		}
		if t.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Passes{Passes: m}}) == nil {
			at := now
			if last.at.IsZero() {
				at = now.Add(-rand.N(capability.PassRenewal)) // many come at once: they are renewed one by one
			}
			t.told[node] = told{next, at}
		} // else it is told when it is back
	}
	maps.DeleteFunc(t.told, func(node string, _ told) bool { return connected[node] == nil })
}
