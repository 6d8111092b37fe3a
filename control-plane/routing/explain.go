package routing

import (
	"time"

	"github.com/headstart-mesh/headstart/control-plane/topology"
)

// Explanation is why a function's requests are spread as they are. Times are in seconds.
type Explanation struct {
	Function string `json:"function"`
	// Policy is the value of headstart.dev/routing that holds.
	Policy string `json:"policy"`
	// Even says why there are no weights; empty: there are.
	Even string `json:"even,omitempty"`
	// Decided is how long ago weights were looked at.
	Decided float64 `json:"decidedSecondsAgo"`
	// Latency is what a request is expected to take with the weights in use.
	Latency  float64   `json:"expectedSeconds,omitempty"`
	Nodes    []Node    `json:"nodes"`
	Gateways []Gateway `json:"gateways"`
}

// Node is one that has endpoints of the function, as it is taken to be.
type Node struct {
	Name      string   `json:"name"` // empty: unknown
	Endpoints []string `json:"endpoints"`
	// Requests end there per second, and so many are on it.
	Requests float64 `json:"requestsPerSecond"`
	InFlight float64 `json:"inFlight"`
	// Service is how long a request holds a worker, Sojourn how long it is there; 0: unknown.
	Service float64 `json:"serviceSeconds"`
	Sojourn float64 `json:"sojournSeconds"`
	// Workers is how many requests it is taken to work on at a time. Guessed: nobody has told,
	// or what was told cannot be.
	Workers float64 `json:"workers"`
	Guessed bool    `json:"guessed,omitempty"`
	// Doubted: requests waited there although by its own word there was room.
	Doubted bool `json:"doubted,omitempty"`
	// Failing is which part of its requests fails that other nodes would answer. What an answer
	// takes there counts as so much more.
	Failing float64 `json:"failing,omitempty"`
	// Trust is which part of these figures is the node's own; the rest is other nodes'.
	Trust float64 `json:"trust"`
	// Silent is for how long nothing was heard of it that should have been. From some seconds
	// on it counts for less and less.
	Silent float64 `json:"silentSeconds"`
}

// Gateway is one row.
type Gateway struct {
	Name string `json:"name"`
	// Requests come by it per second, on average.
	Requests float64 `json:"requestsPerSecond"`
	// Held is since when its shares are as they are.
	Held float64 `json:"heldSeconds"`
	// To are the nodes, as in Explanation.Nodes.
	To []To `json:"to"`
}

// To is what a gateway sends to a node.
type To struct {
	Node string `json:"node"`
	// Share is the part of the gateway's requests, in use; Wanted what would be best by what
	// was measured last, if that were worth a change.
	Share  float64 `json:"share"`
	Wanted float64 `json:"wanted"`
	// RTT is the round trip, Source where that is from, and so long ago it was measured.
	RTT      float64         `json:"rttSeconds"`
	Source   topology.Source `json:"rttSource"`
	RTTAge   float64         `json:"rttAgeSeconds"`
	RTTError float64         `json:"rttError"`
	// Others is how many requests of others the gateway was told to expect there.
	Others float64 `json:"others"`
}

// The reasons of Explanation.Even.
const (
	evenByPolicy = "its annotation says so"
	evenByRelay  = "another autoscaler passes its requests on"
	evenByNumber = "it has less than two endpoints"
	evenByNobody = "no gateway's node is connected"
)

// Explain says why a function's requests are spread as they are; ok is false if there is no
// such function.
func (p *Planner) Explain(name string, now time.Time) (e Explanation, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.functions[name]
	if f == nil {
		return Explanation{}, false
	}
	e = Explanation{Function: name, Policy: f.policy, Decided: now.Sub(f.decided).Seconds(), Nodes: []Node{}, Gateways: []Gateway{}}
	switch {
	case f.loop == nil:
		e.Even = evenByPolicy
	case f.placed.relayed:
		e.Even = evenByRelay
	case !f.placed.choice():
		e.Even = evenByNumber
	case f.matrix == nil:
		e.Even = evenByNobody
	default:
		e.Latency = f.latency
		e.Nodes = f.explainNodes()
		for i := range f.gateways {
			e.Gateways = append(e.Gateways, p.explainRow(f, i, now))
		}
	}
	return e, true
}

func (f *function) explainNodes() []Node {
	endpoints := map[string][]string{}
	for _, a := range f.addresses {
		node := f.placed.nodeOf[a]
		endpoints[node] = append(endpoints[node], a.String())
	}
	var all []Node
	for j, n := range f.measured {
		all = append(all, Node{Name: f.nodes[j], Endpoints: endpoints[f.nodes[j]], Requests: n.RPS, InFlight: n.InFlight, Service: n.Service, Sojourn: n.Sojourn,
			Workers: n.Workers, Guessed: n.guessed, Doubted: n.doubted, Failing: 1 - n.Success, Trust: n.Trust, Silent: n.Node.Age.Seconds()})
	}
	return all
}

func (p *Planner) explainRow(f *function, i int, now time.Time) Gateway {
	name := f.gateways[i]
	g := Gateway{Name: name, Requests: f.loop.Demand(i), Held: now.Sub(f.replaced[name]).Seconds()}
	shares, wanted, expected := f.loop.Shares(i), f.loop.Wanted(i), f.loop.Expect(i)
	for j, node := range f.nodes {
		way := p.measured.RTT(name, node, now)
		g.To = append(g.To, To{Node: node, Share: shares[j], Wanted: wanted[j], RTT: expected[j].RTT.Seconds(),
			Source: way.Source, RTTAge: way.Age.Seconds(), RTTError: way.Error, Others: expected[j].Others})
	}
	return g
}

// silentLong is for how long a node says nothing before somebody should look: a daemon that
// restarts is back by then.
const silentLong = 30 * time.Second

// Problems is what keeps requests from being routed as they should, by function.
func (p *Planner) Problems() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := Problems{}
	for name, f := range p.functions {
		for j, n := range f.measured {
			switch {
			case n.Node.Age > silentLong:
				found.Add(name, "node "+f.nodes[j]+" says nothing; it gets few requests, if any")
			case n.doubted:
				found.Add(
					name,
					"requests waited on node "+f.nodes[j]+", which said that it had room; it is taken to do what it was seen to do",
				)
			}
			if 1-n.Success > failing {
				found.Add(name, "requests fail on node "+f.nodes[j]+" that other nodes answer; it gets few, if any")
			}
		}
		if len(f.lost) > 0 {
			found.Add(name, "nobody knows how far other nodes are; all are taken to be as far", f.lost...)
		}
	}
	return found.Sorted()
}
