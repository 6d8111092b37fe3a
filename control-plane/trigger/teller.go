package trigger

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Nodes are those that can be told something.
type Nodes interface {
	// Connected returns the registrations of the nodes that are connected.
	Connected() map[string]*nodeapi.Register
	// Send sends one message to one node.
	Send(node string, m *nodeapi.ControlMessage) error
}

// Teller keeps the nodes told of the streams that they consume. Its methods may be called
// side by side.
type Teller struct {
	nodes Nodes

	mu    sync.Mutex
	begun bool
	told  map[string]*nodeapi.Triggers // by node that is connected
}

// NewTeller returns one that has told nobody anything, and does not before Begin: the nodes
// that are there come back one by one to a control plane that was restarted, and go on with
// what the one before has told them. Whoever is the first of them would be given everything,
// to lose it to those who consume it all the while.
func NewTeller(nodes Nodes) *Teller {
	return &Teller{nodes: nodes, told: map[string]*nodeapi.Triggers{}}
}

// Begin says that the nodes are there, as far as one can tell, and tells them.
func (t *Teller) Begin(functions []platform.Function) {
	t.mu.Lock()
	t.begun = true
	t.mu.Unlock()
	t.Tell(functions)
}

// Joined says that a node's daemon is connected, anew perhaps: it knows nothing. Tell
// follows.
func (t *Teller) Joined(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, node)
}

// Tell tells each connected node what it consumes of the functions' streams now, if that is
// not what it was told last.
func (t *Teller) Tell(functions []platform.Function) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		return
	}
	var able []string
	for node, r := range t.nodes.Connected() {
		if r.GetTriggers() {
			able = append(able, node)
		}
	}
	maps.DeleteFunc(t.told, func(node string, _ *nodeapi.Triggers) bool { return !slices.Contains(able, node) })
	next := make(map[string]*nodeapi.Triggers, len(able))
	for _, node := range able {
		next[node] = &nodeapi.Triggers{}
	}
	for _, f := range functions {
		if f.Policy.Trigger == "" || f.Deleting || f.Withdrawn {
			continue
		}
		for _, node := range Assign(f.Name, able) {
			next[node].Triggers = append(next[node].Triggers, message(f))
		}
	}
	for node, m := range next {
		// One that was told nothing yet may consume what it was told on another stream.
		if before := t.told[node]; before != nil && proto.Equal(before, m) {
			continue
		}
		if t.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Triggers{Triggers: m}}) == nil {
			t.told[node] = m
		} // else it is told when it is back
	}
}

// message is a function's trigger as nodes know it.
func message(f platform.Function) *nodeapi.Trigger {
	return &nodeapi.Trigger{Function: f.Name, Store: f.Policy.TriggerStore,
		Stream: f.Policy.Trigger, Tries: f.Policy.TriggerTries,
		Input: f.Policy.Templates()[""], Inputs: f.Policy.Templates().Named()}
}
