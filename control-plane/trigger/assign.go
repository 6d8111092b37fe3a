// Package trigger says which nodes consume the streams of triggered functions, and tells
// them so.
package trigger

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Consumers is how many nodes consume one function's stream: a second one, so that entries
// do not wait when the first is gone, and no more, so that not all nodes of a large cluster
// wait at one stream.
const Consumers = 2

// Assign returns the nodes that consume for a function, the preferred one first: those with
// the highest random weight (Thaler and Ravishankar, "Using name-based mappings to increase
// hit rates", 1998). When a node comes or goes, only what it gets or had changes hands; and
// the functions are spread evenly.
func Assign(function string, nodes []string) []string {
	type weighed struct {
		node   string
		weight uint64
	}
	all := make([]weighed, len(nodes))
	for i, node := range nodes {
		sum := sha256.Sum256([]byte(node + "\x00" + function))
		all[i] = weighed{node, binary.BigEndian.Uint64(sum[:])}
	}
	slices.SortFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.node, b.node))
	})
	chosen := make([]string, 0, Consumers)
	for _, w := range all[:min(len(all), Consumers)] {
		chosen = append(chosen, w.node)
	}
	return chosen
}
