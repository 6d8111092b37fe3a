package relay

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/accesslog"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Names of the metrics, as control-plane/signals reads them.
const (
	metricInFlight    = "in_flight"
	metricSojournTime = "sojourn_time"
)

const (
	// logInterval is how often gateways log a request that goes on
	// (upstream_log_flush_interval in manifests/istio/gateways.yaml).
	logInterval = time.Second
	// endpointsMost bounds what gateways can have counted between two reports: some hundred
	// bytes each, in a message of which the control plane takes 4 MiB.
	endpointsMost = 16384
)

// sent counts the requests that the node's gateways send to instances themselves, as they log
// them. It has no memory of single requests: what a gateway does not tell is missing once, and
// nothing stays open. Its methods may be called at the same time.
type sent struct {
	metrics *Metrics

	mu        sync.Mutex
	of        map[string]map[netip.AddrPort]*sentTo // by function, since last
	endpoints int                                   // in of
	last      time.Time
}

// sentTo are one endpoint's.
type sentTo struct {
	ended, failed, answered int
	// busy is how long requests were under way in this time, took how long those took that
	// were answered, all of them together. What failed is no answer: an instance that fails at
	// once would be the fastest.
	busy, took time.Duration
}

// newSent counts from now on.
func newSent(m *Metrics, now time.Time) *sent {
	return &sent{metrics: m, of: map[string]map[netip.AddrPort]*sentTo{}, last: now}
}

// add takes a log entry of a function that there is. Entries of requests to the daemon are
// not counted: it counts those itself.
func (s *sent) add(entry accesslog.Entry) {
	if !entry.To.IsValid() || entry.Kind != accesslog.GoesOn && entry.Kind != accesslog.Ended {
		return
	}
	if entry.Kind == accesslog.Ended {
		s.metrics.requests.WithLabelValues(entry.Function, choiceOf(entry)).Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.to(entry.Function, entry.To)
	if to == nil {
		s.metrics.uncounted.Inc()
		return
	}
	if entry.Kind == accesslog.GoesOn {
		to.busy += logInterval
		return
	}
	to.end(entry)
}

// to is nil when there are too many; the caller holds mu.
func (s *sent) to(function string, at netip.AddrPort) *sentTo {
	if to := s.of[function][at]; to != nil {
		return to
	}
	if s.endpoints == endpointsMost {
		return nil
	}
	s.endpoints++
	if s.of[function] == nil {
		s.of[function] = map[netip.AddrPort]*sentTo{}
	}
	to := &sentTo{}
	s.of[function][at] = to
	return to
}

// end counts a request that is over.
func (t *sentTo) end(entry accesslog.Entry) {
	t.busy += entry.Lasted % logInterval // the rest was told while it lasted
	if entry.Status == 0 && !entry.Broken {
		return // its client has left, which says nothing of the instance
	}
	t.ended++
	if entry.Broken || entry.Status >= 500 {
		t.failed++
		return
	}
	if entry.Answered {
		t.took += entry.Took
		t.answered++
	}
}

// report is what there was since the report before.
func (s *sent) report(now time.Time) (all []*nodeapi.RoutedSignals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := now.Sub(s.last).Seconds()
	if seconds <= 0 {
		return nil
	}
	for function, endpoints := range s.of {
		said := &nodeapi.RoutedSignals{Function: function}
		for at, to := range endpoints {
			said.Endpoints = append(said.Endpoints, to.signals(at, seconds))
		}
		slices.SortFunc(said.Endpoints, func(a, b *nodeapi.EndpointSignals) int { return cmp.Compare(a.GetAddress(), b.GetAddress()) })
		all = append(all, said)
	}
	slices.SortFunc(all, func(a, b *nodeapi.RoutedSignals) int { return cmp.Compare(a.GetFunction(), b.GetFunction()) })
	clear(s.of)
	s.endpoints, s.last = 0, now
	return all
}

func (t *sentTo) signals(at netip.AddrPort, seconds float64) *nodeapi.EndpointSignals {
	m := &nodeapi.EndpointSignals{Address: at.String(), RpsFractional: float64(t.ended) / seconds, Eps: float64(t.failed) / seconds,
		NamedMetrics: map[string]float64{metricInFlight: t.busy.Seconds() / seconds}}
	if t.answered > 0 {
		m.NamedMetrics[metricSojournTime] = t.took.Seconds() / float64(t.answered)
	}
	return m
}
