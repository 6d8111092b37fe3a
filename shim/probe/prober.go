package probe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

// Asker asks a peer; see Connections.
type Asker interface {
	Ask(ctx context.Context, peer Peer) (time.Duration, coordinate.Point, error)
	Keep(peers []Peer)
}

// Config is what a Prober is made of.
type Config struct {
	Plan  *Plan
	Asker Asker
	// Traffic may be nil: nothing is learned from other connections.
	Traffic *Traffic
	// Tell hears what is new. It must not block.
	Tell     func(*nodeapi.RoundTrips)
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Prober probes as the plan says.
type Prober struct {
	Config
	changed chan struct{} // holds a token
	probes  *prometheus.CounterVec
}

// What became of a probe.
const (
	resultAnswered = "answered"
	resultFailed   = "failed"
)

// NewProber registers the metrics, which docs/reference/metrics.md describes.
func NewProber(c Config) *Prober {
	p := &Prober{Config: c, changed: make(chan struct{}, 1), probes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_probes_total", Help: "Probes of other nodes' daemons, by what became of them: answered or failed."}, []string{"result"})}
	for _, result := range []string{resultAnswered, resultFailed} {
		p.probes.WithLabelValues(result)
	}
	c.Registry.MustRegister(p.probes, roundTrips{p.Plan},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "headstart_probe_coordinate_error_ratio", Help: "How wrong distances by the node's coordinate may be, relative to them."},
			func() float64 { return p.Plan.Point().Error() }))
	return p
}

var roundTrip = prometheus.NewDesc("headstart_probe_round_trip_seconds", "Round-trip times to other nodes that were measured within some minutes.", []string{"node"}, nil)

// roundTrips tells how far the plan's peers are.
type roundTrips struct{ *Plan }

// Describe implements prometheus.Collector.
func (roundTrips) Describe(to chan<- *prometheus.Desc) { to <- roundTrip }

// Collect implements prometheus.Collector.
func (r roundTrips) Collect(to chan<- prometheus.Metric) {
	for _, m := range r.Measured(time.Now()) {
		to <- prometheus.MustNewConstMetric(roundTrip, prometheus.GaugeValue, float64(m.GetRttUs())/1e6, m.GetNode())
	}
}

// SetPeers replaces whom to probe.
func (p *Prober) SetPeers(peers []Peer) {
	p.Plan.SetPeers(peers, time.Now())
	p.Asker.Keep(peers)
	p.look()
}

// look has Run look at the plan, which has changed.
func (p *Prober) look() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	var probing sync.WaitGroup
	defer p.Asker.Keep(nil)
	defer probing.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-next.C:
		}
		now := time.Now()
		if p.Traffic != nil {
			p.Traffic.Look(now, p.Plan)
		}
		peer, wait, due := p.Plan.Next(now)
		if due {
			probing.Go(func() { p.probe(ctx, peer) })
			wait = spacing
		}
		if r := p.Plan.Report(now); r != nil {
			p.Tell(r)
		}
		next.Reset(min(wait, reportEvery))
	}
}

func (p *Prober) probe(ctx context.Context, peer Peer) {
	defer p.look()
	rtt, at, err := p.Asker.Ask(ctx, peer)
	if err == nil {
		p.probes.WithLabelValues(resultAnswered).Inc()
		p.Plan.Answered(peer.Name, rtt, at, time.Now())
		return
	}
	p.Plan.Failed(peer.Name, time.Now())
	if ctx.Err() == nil {
		p.probes.WithLabelValues(resultFailed).Inc()
		p.Log.Debug("a node did not answer a probe", "node", peer.Name, "error", err)
	}
}
