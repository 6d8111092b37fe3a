package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// shownDaemons is how many of one name fit a line.
const shownDaemons = 3

// status is what is known of the nodes and of routing; functions has each function's part.
func (c *common) status(state platform.State, functions func(platform.Function) admin.Function) admin.Status {
	now := time.Now()
	s := admin.Status{Version: nodeapi.Version, Nodes: []admin.Node{}, Functions: []admin.Function{},
		Routing: slices.Concat(c.Gateways.Problems(), c.planner.Problems(), c.Survey.Problems(now), c.Nodes.Refusals())}
	connected, twins, lacking, keeps := c.Nodes.Connected(), c.Nodes.Twins(now), c.Nodes.StoreProblems(), c.Nodes.Keeps()
	unreached, pools := c.Nodes.DestinationProblems(), c.Nodes.Pools()
	for _, name := range slices.Sorted(maps.Keys(connected)) {
		n := admin.Node{
			Name: name, Version: connected[name].GetVersion(), Site: c.Survey.Site(name),
			NoKernelTLS: connected[name].GetNoKernelTls(), NoConnect: connected[name].GetNoConnect(),
			Problems: slices.Concat(twinProblems(twins[name], now), storeProblems(lacking[name]), destinationProblems(unreached[name])),
		}
		for _, p := range pools[name] {
			of := admin.Pool{Destination: p.Destination, Held: p.Held, Wanted: p.Wanted, Allowed: p.Allowed}
			for _, f := range p.Functions {
				of.Functions = append(of.Functions, admin.PooledFunction{Function: f.Function, Held: f.Held, Wanted: f.Wanted,
					SetupSeconds: f.Setup.Seconds(), OldestSeconds: f.Oldest.Seconds()})
			}
			n.Pools = append(n.Pools, of)
		}
		if kept := keeps[name]; kept != nil {
			n.Cache = &admin.NodeCache{Bytes: kept.GetBytes(), Limit: kept.GetLimit(), Volumes: len(kept.GetVolumes()), Problems: kept.GetProblems()}
			for _, p := range kept.GetProblems() {
				n.Problems = append(n.Problems, admin.NodeProblem{Message: p, Fix: "see docs/operations/troubleshooting.md#a-node-cannot-keep-what-it-fetches"})
			}
		}
		for _, in := range state.Instances {
			if in.Node == name {
				n.Instances++
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, f := range state.Functions {
		if f.Withdrawn {
			continue
		}
		fn := functions(f)
		fn.Name, fn.Hosts, fn.Image, fn.Events = f.Name, f.Hosts, f.Image, c.events.Of(f.Name)
		fn.Workflow = f.Runs().GetVersion()
		fn.Input, fn.Inputs = f.Policy.InputAsGiven(), f.Policy.Named
		fn.Observed = f.Policy.Observe
		s.Functions = append(s.Functions, fn)
	}
	return s
}

// storeProblems are the stores that a node cannot use, for the operator.
func storeProblems(found []nodes.StoreProblem) (all []admin.NodeProblem) {
	for _, p := range found {
		if p.Store == "" {
			all = append(all, admin.NodeProblem{Message: "keeps its stores from before: " + p.Message,
				Fix: "correct the list of stores (docs/reference/stores.md); the node reads it again"})
			continue
		}
		all = append(all, admin.NodeProblem{
			Message: fmt.Sprintf("cannot use store %q: %s", p.Store, p.Message),
			Fix:     "correct the store's secret for this node (docs/reference/stores.md#secrets); it counts from the next request on",
		})
	}
	return all
}

// destinationProblems are the destinations that a node cannot connect to, for the operator.
func destinationProblems(found []nodes.DestinationProblem) (all []admin.NodeProblem) {
	for _, p := range found {
		if p.Destination == "" {
			all = append(all, admin.NodeProblem{Message: "keeps its destinations from before: " + p.Message,
				Fix: "correct the list of destinations (docs/reference/connections.md); the node reads it again"})
			continue
		}
		all = append(all, admin.NodeProblem{
			Message: fmt.Sprintf("cannot connect to destination %q: %s", p.Destination, p.Message),
			Fix:     "see docs/reference/connections.md#problems; functions start without the connection meanwhile",
		})
	}
	return all
}

// twinProblems is what is wrong with a node that has these daemons, for the operator.
func twinProblems(t nodes.Twins, now time.Time) []admin.NodeProblem {
	if len(t.Daemons) == 0 {
		return nil
	}
	var all []string
	for _, d := range t.Daemons[max(len(t.Daemons)-shownDaemons, 0):] {
		said := d.Address + " (" + d.Version
		if d.Process != d.Address {
			said += ", process " + d.Process
		}
		all = append(all, said+")")
	}
	if more := len(t.Daemons) - shownDaemons; more > 0 {
		all = slices.Insert(all, 0, fmt.Sprintf("%d older", more))
	}
	return []admin.NodeProblem{{
		Message: fmt.Sprintf(
			"%d daemons have had this name for %s: %s; only the newest, the last of these, counts", len(t.Daemons),
			now.Sub(t.Since).Round(time.Second), strings.Join(all, ", "),
		),
		Fix: "if they are on two machines, give one of these another name, by a certificate of its own; if on one, an update does not end: see why the older daemon does not",
	}}
}
