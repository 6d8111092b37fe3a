package relay

import (
	"math"
	"net/netip"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const instance = "10.0.0.1"

func socketAddress(ip string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: ip, PortSpecifier: &core.SocketAddress_PortValue{PortValue: port}}}}
}

// goesOn is the entry of a request to an instance that has lasted another interval.
func goesOn() *logdata.HTTPAccessLogEntry {
	e := tagged("default/fire")
	e.CommonProperties.AccessLogType = logdata.AccessLogType_UpstreamPeriodic
	e.CommonProperties.UpstreamRemoteAddress = socketAddress(instance, 8080)
	return e
}

// ended is the entry of a request that was answered after so long; it had waited a
// millisecond for its connection.
func ended(status uint32, took time.Duration) *logdata.HTTPAccessLogEntry {
	e := goesOn()
	e.CommonProperties.AccessLogType = logdata.AccessLogType_UpstreamEnd
	e.CommonProperties.Duration = durationpb.New(took + time.Millisecond)
	e.CommonProperties.TimeToFirstUpstreamTxByte = durationpb.New(time.Millisecond)
	e.CommonProperties.TimeToLastUpstreamRxByte = durationpb.New(took + time.Millisecond)
	e.Response = &logdata.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(status)}
	return e
}

// with changes an entry.
func with(e *logdata.HTTPAccessLogEntry, change func(*logdata.AccessLogCommon)) *logdata.HTTPAccessLogEntry {
	change(e.CommonProperties)
	return e
}

func signals(rps, eps, inFlight, sojourn float64) []*nodeapi.RoutedSignals {
	e := &nodeapi.EndpointSignals{Address: instance + ":8080", RpsFractional: rps, Eps: eps, NamedMetrics: map[string]float64{"in_flight": inFlight}}
	if sojourn > 0 {
		e.NamedMetrics["sojourn_time"] = sojourn
	}
	return []*nodeapi.RoutedSignals{{Function: "default/fire", Endpoints: []*nodeapi.EndpointSignals{e}}}
}

func sameSignals(t *testing.T, want, got []*nodeapi.RoutedSignals) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("signals (-want +got):\n%s", d)
	}
}

// counted is what entries come to in two seconds.
func counted(entries ...*logdata.HTTPAccessLogEntry) []*nodeapi.RoutedSignals {
	began := time.Now()
	s := newSent(NewMetrics(prometheus.NewRegistry()), began)
	a := newActivity(&activities{}, s)
	a.setFunctions(functions())
	a.seen(entries)
	return s.report(began.Add(2 * time.Second))
}

func TestWhatEntriesSayOfInstances(t *testing.T) {
	status := func(e *logdata.HTTPAccessLogEntry) *logdata.HTTPAccessLogEntry { e.Response = nil; return e }
	for name, c := range map[string]struct {
		entries []*logdata.HTTPAccessLogEntry
		want    []*nodeapi.RoutedSignals
	}{
		"answered":         {[]*logdata.HTTPAccessLogEntry{ended(200, 99*time.Millisecond), ended(404, 299*time.Millisecond)}, signals(1, 0, 0.2, 0.199)},
		"failed":           {[]*logdata.HTTPAccessLogEntry{ended(500, 99*time.Millisecond)}, signals(0.5, 0.5, 0.05, 0)},
		"some failed":      {[]*logdata.HTTPAccessLogEntry{ended(200, 99*time.Millisecond), ended(503, 0), ended(500, 0)}, signals(1.5, 1, 0.051, 0.099)},
		"goes on":          {[]*logdata.HTTPAccessLogEntry{goesOn(), goesOn(), goesOn()}, signals(0, 0, 1.5, 0)},
		"a long one's end": {[]*logdata.HTTPAccessLogEntry{ended(200, 7*time.Second+199*time.Millisecond)}, signals(0.5, 0, 0.1, 7.199)},
		"its client left":  {[]*logdata.HTTPAccessLogEntry{status(ended(0, 99*time.Millisecond))}, signals(0, 0, 0.05, 0)},
		"its answer breaks off": {[]*logdata.HTTPAccessLogEntry{with(ended(200, 99*time.Millisecond), func(p *logdata.AccessLogCommon) { p.ResponseFlags = &logdata.ResponseFlags{UpstreamRemoteReset: true} })},
			signals(0.5, 0.5, 0.05, 0)},
		"no connection": {[]*logdata.HTTPAccessLogEntry{status(with(ended(0, 99*time.Millisecond), func(p *logdata.AccessLogCommon) {
			p.TimeToFirstUpstreamTxByte, p.TimeToLastUpstreamRxByte, p.ResponseFlags = nil, nil, &logdata.ResponseFlags{UpstreamConnectionFailure: true}
		}))}, signals(0.5, 0.5, 0.05, 0)},
		"has its connection": {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.AccessLogType = logdata.AccessLogType_UpstreamPoolReady })}, nil},
		"of a listener":      {[]*logdata.HTTPAccessLogEntry{with(ended(200, time.Second), func(p *logdata.AccessLogCommon) { p.AccessLogType = logdata.AccessLogType_DownstreamEnd })}, nil},
		"to the daemon": {[]*logdata.HTTPAccessLogEntry{with(ended(200, time.Second), func(p *logdata.AccessLogCommon) {
			p.UpstreamRemoteAddress = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/a"}}}
		})}, nil},
		"no endpoint yet":            {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.UpstreamRemoteAddress = nil })}, nil},
		"a name":                     {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.UpstreamRemoteAddress = socketAddress("fire.default", 80) })}, nil},
		"a zone":                     {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.UpstreamRemoteAddress = socketAddress("fe80::1%made-up", 80) })}, nil},
		"no port":                    {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.UpstreamRemoteAddress = socketAddress(instance, 1<<16) })}, nil},
		"of a function that is none": {[]*logdata.HTTPAccessLogEntry{with(goesOn(), func(p *logdata.AccessLogCommon) { p.CustomTags[functionTag] = "default/made-up" })}, nil},
		"nothing":                    {[]*logdata.HTTPAccessLogEntry{tagged("default/fire")}, nil},
		"times that cannot be": {[]*logdata.HTTPAccessLogEntry{
			with(ended(200, 0), func(p *logdata.AccessLogCommon) {
				p.Duration, p.TimeToLastUpstreamRxByte = &durationpb.Duration{Seconds: math.MaxInt64}, &durationpb.Duration{Seconds: math.MaxInt64}
			}),
			with(ended(200, 0), func(p *logdata.AccessLogCommon) {
				p.Duration, p.TimeToFirstUpstreamTxByte = durationpb.New(-time.Second), durationpb.New(-time.Second)
			}),
			with(ended(200, 0), func(p *logdata.AccessLogCommon) {
				p.Duration, p.TimeToFirstUpstreamTxByte = nil, durationpb.New(time.Minute)
			}),
		}, signals(1.5, 0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) { sameSignals(t, c.want, counted(c.entries...)) })
	}
}

// A report is of the time since the one before: nothing stays, whatever was not told.
func TestSignalsAreOfTheTimeBetween(t *testing.T) {
	r := newRig(t, "")
	r.relay.SetFunctions(functions())
	s := r.logs(t)
	for _, e := range []*logdata.HTTPAccessLogEntry{goesOn(), ended(200, 99*time.Millisecond)} {
		if err := s.Send(&accesslog.StreamAccessLogsMessage{LogEntries: &accesslog.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslog.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*logdata.HTTPAccessLogEntry{e}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Second)
	if got := r.relay.Signals(now); len(got) != 1 || got[0].GetFunction() != "default/fire" || got[0].GetEndpoints()[0].GetRpsFractional() <= 0 {
		t.Errorf("heard %v", got)
	}
	if got := r.relay.Signals(now.Add(time.Second)); got != nil {
		t.Errorf("again %v", got)
	}
	if got := r.relay.Signals(now.Add(time.Second)); got != nil { // of no time
		t.Errorf("at once %v", got)
	}
}

// Whoever has the gateways' socket can name endpoints without end. The first ones count, and
// what is said of them fits into a message.
func TestEndpointsAreLimited(t *testing.T) {
	began := time.Now()
	m := NewMetrics(prometheus.NewRegistry())
	s := newSent(m, began)
	at := netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")
	for range endpointsMost + 10 {
		s.add("default/fire", with(ended(200, time.Millisecond), func(p *logdata.AccessLogCommon) { p.UpstreamRemoteAddress = socketAddress(at.String(), 65535) }))
		at = at.Next()
	}
	if got := testutil.ToFloat64(m.uncounted); got != 10 {
		t.Errorf("%g were not counted", got)
	}
	got := &nodeapi.Signals{Routed: s.report(began.Add(time.Second / 3))}
	if n, size := len(got.GetRouted()[0].GetEndpoints()), proto.Size(got); n != endpointsMost || size > 3<<20 {
		t.Errorf("%d endpoints in %d bytes", n, size)
	}
	s.add("default/fire", goesOn())
	if got := s.report(began.Add(time.Second)); len(got) != 1 {
		t.Errorf("afterwards %v", got)
	}
}

// Whatever an entry says, it is counted as what a request can be, or not at all.
func FuzzEntry(f *testing.F) {
	for _, e := range []*logdata.HTTPAccessLogEntry{goesOn(), ended(200, time.Second), ended(503, 0), tagged("default/fire")} {
		b, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e logdata.HTTPAccessLogEntry
		if proto.Unmarshal(b, &e) != nil {
			return
		}
		for _, f := range counted(&e) {
			for _, to := range f.GetEndpoints() {
				inFlight, sojourn := to.GetNamedMetrics()["in_flight"], to.GetNamedMetrics()["sojourn_time"]
				if at, err := netip.ParseAddrPort(to.GetAddress()); err != nil || at.String() != to.GetAddress() || !(inFlight >= 0 && inFlight <= 0.5) ||
					!(sojourn >= 0 && sojourn <= 3600) || to.GetRpsFractional() > 0.5 || to.GetEps() > to.GetRpsFractional() {
					t.Errorf("%v", to)
				}
			}
		}
	})
}
