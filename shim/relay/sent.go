package relay

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"

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
	// longest is longer than a request takes: the longest timeout is an hour.
	longest = time.Hour
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
func (s *sent) add(function string, entry *logdata.HTTPAccessLogEntry) {
	p := entry.GetCommonProperties()
	at, ok := instanceAddress(p.GetUpstreamRemoteAddress())
	if !ok {
		return
	}
	switch p.GetAccessLogType() {
	case logdata.AccessLogType_UpstreamPeriodic, logdata.AccessLogType_UpstreamEnd:
	default:
		return
	}
	if p.GetAccessLogType() == logdata.AccessLogType_UpstreamEnd {
		s.metrics.requests.WithLabelValues(function, choiceOf(entry, at)).Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.to(function, at)
	if to == nil {
		s.metrics.uncounted.Inc()
		return
	}
	if p.GetAccessLogType() == logdata.AccessLogType_UpstreamPeriodic {
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
func (t *sentTo) end(entry *logdata.HTTPAccessLogEntry) {
	p := entry.GetCommonProperties()
	if lasted, ok := length(p.GetDuration()); ok {
		t.busy += lasted % logInterval // the rest was told while it lasted
	}
	status := entry.GetResponse().GetResponseCode().GetValue()
	broken := brokenOff(p.GetResponseFlags())
	if status == 0 && !broken {
		return // its client has left, which says nothing of the instance
	}
	t.ended++
	if broken || status >= 500 {
		t.failed++
		return
	}
	begin, begun := length(p.GetTimeToFirstUpstreamTxByte())
	end, answered := length(p.GetTimeToLastUpstreamRxByte())
	if begun && answered && end >= begin {
		t.took += end - begin
		t.answered++
	}
}

// brokenOff tells whether it was the instance, or the way to it, that ended the request.
func brokenOff(f *logdata.ResponseFlags) bool {
	return f.GetUpstreamConnectionFailure() || f.GetUpstreamConnectionTermination() || f.GetUpstreamRemoteReset() || f.GetUpstreamRequestTimeout() ||
		f.GetUpstreamProtocolError() || f.GetUpstreamMaxStreamDurationReached()
}

// length is a time that a request can take. ok is false for others, and for none.
func length(d *durationpb.Duration) (_ time.Duration, ok bool) {
	l := d.AsDuration()
	return l, d != nil && l >= 0 && l <= longest
}

// instanceAddress is an endpoint's. ok is false for sockets of the node, and for what is none.
func instanceAddress(a *core.Address) (_ netip.AddrPort, ok bool) {
	at := a.GetSocketAddress()
	ip, err := netip.ParseAddr(at.GetAddress())
	port := at.GetPortValue()
	if err != nil || ip.Zone() != "" || port == 0 || port > 65535 { // a zone can have any length
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip, uint16(port)), true
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
