package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logpb "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/headstart-mesh/headstart/shim/accesslog"
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

// What is not known makes nothing grow.
func TestOnlyFunctionsAreInUse(t *testing.T) {
	for function, want := range map[string][]string{"default/fire": {"default/fire true"}, "default/made-up": nil, "": nil} {
		said := &activities{}
		a := newActivity(said, newSent(NewMetrics(prometheus.NewRegistry()), time.Now()))
		a.seen([]accesslog.Entry{of(function)}) // of no function yet
		a.setFunctions(functions())
		a.seen([]accesslog.Entry{of(function), of(function)})
		if got := said.take(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", function, got, want)
		}
		if len(a.last) != len(want) {
			t.Errorf("%q: %d functions are remembered", function, len(a.last))
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
		fire := []accesslog.Entry{of("default/fire")}
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

// logged has a gateway send lines, and waits until they are taken.
func (r *rig) logged(t *testing.T, lines ...string) {
	t.Helper()
	if err := r.log(t, lines...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) log(t *testing.T, lines ...string) error {
	var records []*logpb.LogRecord
	for _, line := range lines {
		records = append(records, &logpb.LogRecord{Body: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: line}}})
	}
	_, err := logs.NewLogsServiceClient(r.gateway).Export(t.Context(), &logs.ExportLogsServiceRequest{
		ResourceLogs: []*logpb.ResourceLogs{{ScopeLogs: []*logpb.ScopeLogs{{LogRecords: records}}}}})
	return err
}

func TestAccessLogsAreActivity(t *testing.T) {
	r := newRig(t, "")
	r.relay.SetFunctions(functions())
	r.logged(t, "default/fire UpstreamPoolReady 0 - 0 - - 10.0.0.1:80", "no entry", "default/made-up UpstreamPoolReady 0 - 0 - - 10.0.0.1:80", "")
	r.logged(t, "default/plain UpstreamEnd 200 - 0 - - /run/ingress.sock")
	r.logged(t)
	if got := r.activities.take(); !slices.Equal(got, []string{"default/fire true", "default/plain true"}) {
		t.Errorf("heard %q", got)
	}
}
