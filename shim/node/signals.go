package node

import (
	"context"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// signalsEvery is how often the control plane hears of requests while there are any;
	// quietEvery is how often of none, so that a node without requests is told from one
	// that cannot be heard.
	signalsEvery = time.Second
	quietEvery   = 10 * time.Second
)

// TellSignals tells of the node's requests until ctx ends.
func TellSignals(ctx context.Context, n Node, tell func(*nodeapi.Signals)) {
	tick := time.NewTicker(signalsEvery)
	defer tick.Stop()
	var told time.Time
	quiet := false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m := n.Signals(now)
			none := len(m.GetFunctions()) == 0 && len(m.GetRouted()) == 0
			if none && quiet && now.Sub(told) < quietEvery {
				continue
			}
			told, quiet = now, none
			tell(m)
		}
	}
}
