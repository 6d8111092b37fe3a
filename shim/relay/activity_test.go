package relay

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func contextFor(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// pass lets a bubble's time go by, and what is then due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func functions() []*nodeapi.Function {
	return []*nodeapi.Function{
		{Name: "default/fire", Hosts: []string{"fire.default.svc.cluster.local", "fire.default"}},
		{Name: "default/plain", Hosts: []string{"plain.default.svc.cluster.local"}},
	}
}

func tagged(function string) *logdata.HTTPAccessLogEntry {
	return &logdata.HTTPAccessLogEntry{CommonProperties: &logdata.AccessLogCommon{CustomTags: map[string]string{"headstart.function": function}}}
}

func TestFunctionOfAnEntry(t *testing.T) {
	header := &logdata.HTTPRequestProperties{RequestHeaders: map[string]string{"x-headstart-function": "default/fire"}}
	cluster := func(name string) *logdata.AccessLogCommon { return &logdata.AccessLogCommon{UpstreamCluster: name} }
	for _, c := range []struct {
		name  string
		entry *logdata.HTTPAccessLogEntry
		want  []string
	}{
		{"tag", tagged("default/fire"), []string{"default/fire true"}},
		{"header", &logdata.HTTPAccessLogEntry{Request: header}, []string{"default/fire true"}},
		{"cluster", &logdata.HTTPAccessLogEntry{CommonProperties: cluster("outbound|80||fire.default.svc.cluster.local")}, []string{"default/fire true"}},
		{"subset", &logdata.HTTPAccessLogEntry{CommonProperties: cluster("outbound|80|v1|fire.default.svc.cluster.local")}, []string{"default/fire true"}},
		{"no function's cluster", &logdata.HTTPAccessLogEntry{CommonProperties: cluster("outbound|80||other.default.svc.cluster.local")}, nil},
		{"no service's cluster", &logdata.HTTPAccessLogEntry{CommonProperties: cluster("PassthroughCluster")}, nil},
		{"unknown function", tagged("default/made-up"), nil},
		{"nothing", &logdata.HTTPAccessLogEntry{}, nil},
	} {
		said := &activities{}
		a := newActivity(said, newSent(NewMetrics(prometheus.NewRegistry()), time.Now()))
		a.seen([]*logdata.HTTPAccessLogEntry{c.entry}) // of no function yet
		a.setFunctions(functions())
		a.seen([]*logdata.HTTPAccessLogEntry{c.entry, c.entry})
		if got := said.take(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if len(a.last) > 1 {
			t.Errorf("%s: %d functions are remembered", c.name, len(a.last))
		}
	}
}

// A function is in use for two seconds after the last word of it, and only changes are told.
func TestActivityIsToldWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &activities{}
		a := newActivity(said, newSent(NewMetrics(prometheus.NewRegistry()), time.Now()))
		a.setFunctions(functions())
		ctx, cancel := contextFor(t)
		done := make(chan struct{})
		go func() { defer close(done); a.expire(ctx) }()
		want := func(when string, what ...string) {
			t.Helper()
			if got := said.take(); !slices.Equal(got, what) {
				t.Errorf("%s: %q, want %q", when, got, what)
			}
		}
		fire := []*logdata.HTTPAccessLogEntry{tagged("default/fire")}
		for range 5 {
			a.seen(fire)
			pass(time.Second)
		}
		want("while it is used", "default/fire true")
		pass(activeFor + expireInterval)
		want("afterwards", "default/fire false")
		a.seen(fire)
		a.setFunctions(nil) // deleted while in use
		a.seen(fire)
		want("again", "default/fire true")
		pass(activeFor + expireInterval)
		want("deleted", "default/fire false")
		cancel()
		<-done
	})
}

func (r *rig) logs(t *testing.T) accesslog.AccessLogService_StreamAccessLogsClient {
	t.Helper()
	s, err := accesslog.NewAccessLogServiceClient(r.gateway).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAccessLogsAreActivity(t *testing.T) {
	r := newRig(t, "")
	r.relay.SetFunctions(functions())
	s := r.logs(t)
	for _, name := range []string{"default/fire", "default/made-up", "default/plain"} {
		if err := s.Send(&accesslog.StreamAccessLogsMessage{LogEntries: &accesslog.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslog.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*logdata.HTTPAccessLogEntry{tagged(name)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Send(&accesslog.StreamAccessLogsMessage{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	if got := r.activities.take(); !slices.Equal(got, []string{"default/fire true", "default/plain true"}) {
		t.Errorf("heard %q", got)
	}
}

// A cluster's name comes from whoever has the socket.
func FuzzServiceOf(f *testing.F) {
	f.Add("outbound|80||fire.default.svc.cluster.local")
	f.Fuzz(func(t *testing.T, cluster string) {
		if host := serviceOf(cluster); !strings.HasSuffix(cluster, host) || strings.Contains(host, "|") {
			t.Errorf("%q: %q", cluster, host)
		}
	})
}
