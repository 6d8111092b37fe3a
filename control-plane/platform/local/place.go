package local

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// perByte is how long a missing byte takes: 1 Gbit/s, what a node has at least in most data centers.
	perByte = 8 * time.Nanosecond
	// perInstance is how long a start takes longer for each instance that the node has: one that starts takes some
	// seconds of a core, and all have memory.
	perInstance = time.Second
	// perHop is what another node than the gateway's costs: it fetches the request's input again.
	perHop = 100 * time.Millisecond
	// waitMost is what missing bytes count for at most. So a node that has them gets at most 30 instances more than
	// one that has not, however much it says that it has.
	waitMost = 30 * time.Second
)

// candidate is a node that an instance could be placed on.
type candidate struct {
	node string
	// gateway: the request came to this node.
	gateway   bool
	instances int
	// missing is how many bytes of the function's volumes it does not have, and room how many more it can have.
	missing, room int64
}

// wait is what the instance would wait for there: the missing volumes, and the other instances. These do not count on
// the gateway's own node, so that a request leaves it only for a node with fewer missing bytes.
func (c candidate) wait() time.Duration {
	fetch := min(time.Duration(min(c.missing, math.MaxInt64/int64(perByte)))*perByte, waitMost)
	if c.gateway {
		return fetch
	}
	return fetch + perHop + time.Duration(c.instances)*perInstance
}

// best is the node with room for which the wait is the shortest. Among equals the gateway's own counts, then fewer
// missing bytes, fewer instances, and the name.
func best(all []candidate) string {
	first := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(first(a.missing <= a.room)-first(b.missing <= b.room), cmp.Compare(a.wait(), b.wait()),
			first(a.gateway)-first(b.gateway), cmp.Compare(a.missing, b.missing), a.instances-b.instances, cmp.Compare(a.node, b.node))
	}).node
}

// place picks the node: the manifest's own, else the best one. The caller holds mu.
func (p *Platform) place(f platform.Function, gateway string) (string, error) {
	switch {
	case f.Node != "" && p.joined[f.Node]:
		return f.Node, nil
	case len(p.joined) == 0:
		return "", &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NoNode", Message: "no node is connected to the control plane"}
	case f.Node != "":
		_, left := p.left[f.Node]
		return "", &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeUnavailable", Field: "spec.template.spec.nodeSelector",
			Passing: left, Message: fmt.Sprintf("node %q is not connected; nodes are: %s", f.Node, strings.Join(p.nodeNames(), ", "))}
	}
	perNode := map[string]int{}
	for _, in := range p.instances {
		perNode[in.Node]++
	}
	for _, j := range p.jobs {
		perNode[j.node]++
	}
	keeps := map[string]*nodeapi.Keeps{}
	if len(f.Policy.Volumes.List) > 0 {
		keeps = p.nodes.Keeps()
	}
	lacks := missing(f, keeps, p.joined)
	var all []candidate
	for node := range p.joined {
		c := candidate{node: node, gateway: node == gateway, instances: perNode[node], missing: lacks[node], room: math.MaxInt64}
		if kept := keeps[node]; kept != nil {
			c.room = kept.GetRoom()
		}
		all = append(all, c)
	}
	return best(all), nil
}

// missing is how many bytes of a function's volumes each of the nodes does not have. How large a volume is, the nodes
// say that have it: without any, nothing is known to be missing anywhere.
func missing(f platform.Function, keeps map[string]*nodeapi.Keeps, nodes map[string]bool) map[string]int64 {
	namespace, _, _ := strings.Cut(f.Name, "/")
	bytes := map[string]int64{}
	for _, v := range f.Policy.Volumes.List {
		prefix, has, size := v.Prefix.String(), map[string]int64{}, int64(0)
		for node, k := range keeps {
			for _, kept := range k.GetVolumes() {
				if kept.GetNamespace() == namespace && kept.GetStore() == f.Policy.Volumes.Store && kept.GetPrefix() == prefix {
					has[node] = max(has[node], kept.GetBytes())
				}
			}
			size = max(size, has[node])
		}
		for node := range nodes {
			bytes[node] += size - has[node]
		}
	}
	return bytes
}
