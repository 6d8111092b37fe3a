package routing

import (
	"math/rand/v2"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/topology"
)

// distances remembers round trips for a while.
type distances struct {
	measured Measurements
	of       map[string]*distancesFrom // by gateway
}

type distancesFrom struct {
	measured Measurements
	gateway  string
	until    time.Time
	of       map[string]topology.Estimate // by node
}

// from are a gateway's. Each has a time of its own to be asked for again, so that not all are
// at once.
func (d *distances) from(gateway string, now time.Time) *distancesFrom {
	f := d.of[gateway]
	if f == nil || now.After(f.until) {
		f = &distancesFrom{measured: d.measured, gateway: gateway, until: now.Add(distancesFor/2 + rand.N(distancesFor)), of: map[string]topology.Estimate{}}
		d.of[gateway] = f
	}
	return f
}

func (f *distancesFrom) to(node string, now time.Time) topology.Estimate {
	e, known := f.of[node]
	if !known {
		if e = f.measured.RTT(f.gateway, node, now); e.Source != topology.Unknown { // may be known in a moment
			f.of[node] = e
		}
	}
	return e
}
