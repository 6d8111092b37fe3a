// Package trigger says which nodes consume the streams of triggered functions, and tells
// them so.
package trigger

import "github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"

// Consumers is how many nodes consume one function's stream: a second one, so that entries
// do not wait when the first is gone, and no more, so that not all nodes of a large cluster
// wait at one stream.
const Consumers = 2

// Assign returns the nodes that consume for a function, the preferred one first.
func Assign(function string, nodes []string) []string {
	return rendezvous.Choose(function, nodes, Consumers)
}
