package policy

import (
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// Connections are the operator's destinations that a pod's program is connected to before it starts.
type Connections struct {
	Destinations []string
	// By is how the program gets them, one of the values of KeyConnectionsBy.
	By string
	// Kinds are those of the destinations, by their names.
	Kinds map[string]string
}

// Message is what a node is told of the connections of a pod's container, or of an instance; nil if there are none.
func (c Connections) Message(id, name, container string) *nodeapi.Connections {
	if len(c.Destinations) == 0 {
		return nil
	}
	return &nodeapi.Connections{Id: id, Name: name, Container: container, Destinations: c.Destinations, By: c.By,
		Kinds: c.Kinds}
}

// checkConnections completes the connections, and holds them against the operator's list.
func (p *Policy) checkConnections(ds destinations.Destinations) field.Errors {
	if len(p.Connections.Destinations) == 0 {
		p.Connections = Connections{}
		return nil
	}
	if p.Connections.By == "" {
		p.Connections.By = filterapi.BySocket
	}
	p.Connections.Kinds = map[string]string{}
	for _, name := range p.Connections.Destinations {
		if d, ok := ds.Get(name); ok {
			p.Connections.Kinds[name] = d.Kind
			continue
		}
		fix := "ask the operator to allow it"
		if names := ds.Names(); len(names) > 0 {
			fix = "use " + oneOf(names) + ", or " + fix
		}
		return field.Errors{{Field: KeyConnections, Value: name, Problem: NoDestination, Fix: fix}}
	}
	return nil
}

// NoDestination is said of a name that the operator's list does not have for the namespace.
const NoDestination = "is not among the operator's destinations"
