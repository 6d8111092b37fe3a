package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/probe"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

const (
	// signalsEvery is how often the control plane hears of requests while there are any;
	// quietEvery is how often of none, so that a node without requests is told from one
	// that cannot be heard.
	signalsEvery = time.Second
	quietEvery   = 10 * time.Second
)

// tellSignals tells of the requests that pass the daemon until ctx ends.
func tellSignals(ctx context.Context, in *ingress.Ingress, up *uplink.Uplink) {
	tick := time.NewTicker(signalsEvery)
	defer tick.Stop()
	var told time.Time
	quiet := false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m := in.Signals(now)
			none := len(m.GetFunctions()) == 0
			if none && quiet && now.Sub(told) < quietEvery {
				continue
			}
			told, quiet = now, none
			up.Signals(m)
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
