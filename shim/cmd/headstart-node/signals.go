package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/probe"
)

const (
	// signalsEvery is how often the control plane hears of requests while there are any;
	// quietEvery is how often of none, so that a node without requests is told from one
	// that cannot be heard.
	signalsEvery = time.Second
	quietEvery   = 10 * time.Second
)

// signals is what there was since it was asked for last: of requests that passed the daemon,
// and of those that gateways report to it.
func (n *node) signals(now time.Time) *nodeapi.Signals {
	m := n.ingress.Signals(now)
	if n.relay != nil {
		m.Routed = n.relay.Signals(now)
	}
	return m
}

// tellSignals tells of the node's requests until ctx ends.
func tellSignals(ctx context.Context, n *node) {
	tick := time.NewTicker(signalsEvery)
	defer tick.Stop()
	var told time.Time
	quiet := false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m := n.signals(now)
			none := len(m.GetFunctions()) == 0 && len(m.GetRouted()) == 0
			if none && quiet && now.Sub(told) < quietEvery {
				continue
			}
			told, quiet = now, none
			n.uplink.Signals(m)
		}
	}
}

// roundTrips is what the prober measured, for the control plane.
func roundTrips(r probe.Report) *nodeapi.RoundTrips {
	m := &nodeapi.RoundTrips{Coordinate: &nodeapi.Coordinate{Vector: r.Coordinate.Vector, Height: r.Coordinate.Height,
		Adjustment: r.Coordinate.Adjustment, Error: r.Coordinate.Error}}
	for _, to := range r.Measured {
		m.Measured = append(m.Measured, &nodeapi.RoundTrip{Node: to.Peer, RttUs: to.RTT.Microseconds(), Age: durationpb.New(to.Age)})
	}
	return m
}

func peersOf(m *nodeapi.Neighbours) (peers []probe.Peer) {
	for _, n := range m.GetNeighbours() {
		peers = append(peers, probe.Peer{Name: n.GetNode(), Address: n.GetPeerAddress()})
	}
	return peers
}
