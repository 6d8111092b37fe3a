package relay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/accesslog"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const instance = "10.0.0.1"

var address = netip.MustParseAddrPort(instance + ":8080")

func of(function string) accesslog.Entry {
	return accesslog.Entry{Function: function, Kind: accesslog.Begun}
}

// goesOn is the entry of a request to an instance that has lasted another interval.
func goesOn() accesslog.Entry {
	return accesslog.Entry{Function: "default/fire", Kind: accesslog.GoesOn, To: address}
}

// ended is the entry of a request that was answered after so long; it had waited a
// millisecond for its connection.
func ended(status int, took time.Duration) accesslog.Entry {
	return accesslog.Entry{Function: "default/fire", Kind: accesslog.Ended, Status: status, Lasted: took + time.Millisecond, Took: took, Answered: true, To: address}
}

// with changes an entry.
func with(e accesslog.Entry, change func(*accesslog.Entry)) accesslog.Entry {
	change(&e)
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
func counted(entries ...accesslog.Entry) []*nodeapi.RoutedSignals {
	began := time.Now()
	s := newSent(NewMetrics(prometheus.NewRegistry()), began)
	a := newActivity(&activities{}, s)
	a.setFunctions(functions())
	a.seen(entries)
	return s.report(began.Add(2 * time.Second))
}

func TestWhatEntriesSayOfInstances(t *testing.T) {
	for name, c := range map[string]struct {
		entries []accesslog.Entry
		want    []*nodeapi.RoutedSignals
	}{
		"answered":         {[]accesslog.Entry{ended(200, 99*time.Millisecond), ended(404, 299*time.Millisecond)}, signals(1, 0, 0.2, 0.199)},
		"failed":           {[]accesslog.Entry{ended(500, 99*time.Millisecond)}, signals(0.5, 0.5, 0.05, 0)},
		"some failed":      {[]accesslog.Entry{ended(200, 99*time.Millisecond), ended(503, 0), ended(500, 0)}, signals(1.5, 1, 0.051, 0.099)},
		"goes on":          {[]accesslog.Entry{goesOn(), goesOn(), goesOn()}, signals(0, 0, 1.5, 0)},
		"a long one's end": {[]accesslog.Entry{ended(200, 7*time.Second+199*time.Millisecond)}, signals(0.5, 0, 0.1, 7.199)},
		"its client left":  {[]accesslog.Entry{ended(0, 99*time.Millisecond)}, signals(0, 0, 0.05, 0)},
		"its answer breaks off": {[]accesslog.Entry{with(ended(200, 99*time.Millisecond), func(e *accesslog.Entry) { e.Broken = true })},
			signals(0.5, 0.5, 0.05, 0)},
		"no connection": {[]accesslog.Entry{with(ended(0, 0), func(e *accesslog.Entry) {
			e.Broken, e.Answered, e.Lasted = true, false, 100*time.Millisecond
		})}, signals(0.5, 0.5, 0.05, 0)},
		"no answer's time":           {[]accesslog.Entry{with(ended(200, 0), func(e *accesslog.Entry) { e.Answered, e.Lasted = false, 0 })}, signals(0.5, 0, 0, 0)},
		"has its connection":         {[]accesslog.Entry{with(goesOn(), func(e *accesslog.Entry) { e.Kind = accesslog.Begun })}, nil},
		"of a listener":              {[]accesslog.Entry{with(ended(200, time.Second), func(e *accesslog.Entry) { e.Kind = "DownstreamEnd" })}, nil},
		"to the daemon":              {[]accesslog.Entry{with(ended(200, time.Second), func(e *accesslog.Entry) { e.To = netip.AddrPort{} })}, nil},
		"of a function that is none": {[]accesslog.Entry{with(goesOn(), func(e *accesslog.Entry) { e.Function = "default/made-up" })}, nil},
		"nothing":                    {[]accesslog.Entry{of("default/fire")}, nil},
	} {
		t.Run(name, func(t *testing.T) { sameSignals(t, c.want, counted(c.entries...)) })
	}
}

// A report is of the time since the one before: nothing stays, whatever was not told.
func TestSignalsAreOfTheTimeBetween(t *testing.T) {
	r := newRig(t, "")
	r.relay.SetFunctions(functions())
	r.logged(t, "default/fire UpstreamPeriodic 0 - 1000 - - "+address.String(), "default/fire UpstreamEnd 200 - 100 99000 - "+address.String())
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
		s.add(with(ended(200, time.Millisecond), func(e *accesslog.Entry) { e.To = netip.AddrPortFrom(at, 65535) }))
		at = at.Next()
	}
	if got := testutil.ToFloat64(m.uncounted); got != 10 {
		t.Errorf("%g were not counted", got)
	}
	got := &nodeapi.Signals{Routed: s.report(began.Add(time.Second / 3))}
	if n, size := len(got.GetRouted()[0].GetEndpoints()), proto.Size(got); n != endpointsMost || size > 3<<20 {
		t.Errorf("%d endpoints in %d bytes", n, size)
	}
	s.add(goesOn())
	if got := s.report(began.Add(time.Second)); len(got) != 1 {
		t.Errorf("afterwards %v", got)
	}
}

// Whatever a line says, it is counted as what a request can be, or not at all.
func FuzzEntry(f *testing.F) {
	f.Add("default/fire UpstreamPeriodic 0 - 1000 - - 10.0.0.1:8080")
	f.Add("default/fire UpstreamEnd 503 UF,URX 3 99000 10.0.0.1:8080 10.0.0.1:8080")
	f.Fuzz(func(t *testing.T, line string) {
		e, _ := accesslog.Parse(line)
		canBe(t, counted(e))
	})
}

// canBe fails for what one request cannot come to in two seconds.
func canBe(t *testing.T, all []*nodeapi.RoutedSignals) {
	t.Helper()
	for _, f := range all {
		for _, to := range f.GetEndpoints() {
			inFlight, sojourn := to.GetNamedMetrics()["in_flight"], to.GetNamedMetrics()["sojourn_time"]
			if at, err := netip.ParseAddrPort(to.GetAddress()); err != nil || at.String() != to.GetAddress() || !(inFlight >= 0 && inFlight <= 0.5) ||
				!(sojourn >= 0 && sojourn <= 3600) || to.GetRpsFractional() > 0.5 || to.GetEps() > to.GetRpsFractional() {
				t.Errorf("%v", to)
			}
		}
	}
}
