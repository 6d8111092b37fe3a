// Package rendezvous gives names to nodes without anybody keeping a list: whoever knows the same nodes finds the
// same ones for a name.
package rendezvous

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Choose returns at most so many of the nodes for a name, the preferred one first: those with the highest random
// weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998). When a node comes or
// goes, only the names that it gets or had change hands, and names are spread evenly.
func Choose(name string, nodes []string, most int) []string {
	type weighed struct {
		node   string
		weight uint64
	}
	all := make([]weighed, len(nodes))
	for i, node := range nodes {
		sum := sha256.Sum256([]byte(node + "\x00" + name))
		all[i] = weighed{node, binary.BigEndian.Uint64(sum[:])}
	}
	slices.SortFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.node, b.node))
	})
	chosen := make([]string, 0, most)
	for _, w := range all[:min(len(all), most)] {
		chosen = append(chosen, w.node)
	}
	return chosen
}
