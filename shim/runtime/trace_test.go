package runtime_test

import (
	"context"
	"encoding/hex"
	"errors"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

// span is what a reader of a trace sees of one span.
type span struct {
	Name, Trace, Parent string
	Attributes          map[string]string
	Events              []string
	Failed              bool
}

func spans(c *collector) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []span
	for _, r := range c.got {
		for _, rs := range r.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					one := span{
						Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()),
						Parent:     hex.EncodeToString(s.GetParentSpanId()),
						Attributes: values(append(rs.GetResource().GetAttributes(), s.GetAttributes()...)),
						Failed:     s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
					}
					for _, e := range s.GetEvents() {
						one.Events = append(one.Events, e.GetName())
					}
					all = append(all, one)
				}
			}
		}
	}
	return all
}

func values(attributes []*commonpb.KeyValue) map[string]string {
	m := make(map[string]string, len(attributes))
	for _, kv := range attributes {
		m[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	return m
}

// attributes are those that each span of sandbox a has, with more.
func attributes(id string, more ...string) map[string]string {
	m := map[string]string{
		"service.name": "containerd-shim-headstart", "service.version": "1.2.3", "headstart.instance": id,
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func TestSpans(t *testing.T) {
	ours := func(d *nodeapi.DescribeResponse) *nodeapi.DescribeResponse { d.Traceparent = traceparent; return d }
	create := span{
		Name: "runc.create", Trace: traceID, Parent: parentID, Attributes: attributes("a"),
		Events: []string{"prepared"},
	}
	start := span{Name: "runc.start", Trace: traceID, Parent: parentID, Attributes: attributes("a")}
	unchanged, without, failed := create, create, create
	unchanged.Attributes = attributes("a", "headstart.degraded", "DescriptionInvalid")
	without.Attributes = attributes("a", "headstart.degraded", "DescriptorsMissing")
	failed.Attributes, failed.Events, failed.Failed = attributes("broken"), []string{"prepared", "exception"}, true

	tests := map[string]struct {
		d     *nodeapi.DescribeResponse
		id    string
		start bool
		want  []span
	}{
		"create and start":                  {ours(&nodeapi.DescribeResponse{}), "a", true, []span{create, start}},
		"created and never started":         {ours(&nodeapi.DescribeResponse{}), "a", false, []span{create}},
		"started unchanged":                 {ours(&nodeapi.DescribeResponse{Env: map[string]string{"X": ""}}), "a", true, []span{unchanged, start}},
		"started without descriptors":       {ours(&nodeapi.DescribeResponse{Descriptors: []string{"db"}}), "a", true, []span{without, start}},
		"runc fails":                        {ours(&nodeapi.DescribeResponse{}), "broken", false, []span{failed}},
		"no trace to continue":              {&nodeapi.DescribeResponse{}, "a", true, nil},
		"trace that is not sampled":         {&nodeapi.DescribeResponse{Traceparent: traceparent[:len(traceparent)-1] + "0"}, "a", true, nil},
		"trace context that makes no sense": {&nodeapi.DescribeResponse{Traceparent: "00-zz"}, "a", true, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &collector{}
			tt.d.OtlpTarget = c.target(t)
			s := newService(&runc{}, daemonSocket(t, answer(tt.d)), "1.2.3")
			run(t, s, tt.id, tt.start)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, spans(c)); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// run creates a sandbox, starts it or not, starts a further process in it, deletes it.
func run(t *testing.T, s *runtime.Service, id string, start bool) {
	t.Helper()
	ctx, _ := logged(t)
	_, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: id, Bundle: bundle(t, plain)})
	if id == "broken" {
		if !errors.Is(err, errRunc) {
			t.Fatalf("Create: %v, want runc's error", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if start {
		for _, exec := range []string{"", "shell"} {
			if res, err := s.Start(ctx, &taskAPI.StartRequest{ID: id, ExecID: exec}); err != nil || res.GetPid() != 7 {
				t.Fatalf("Start = %v, %v, want runc's answer", res, err)
			}
		}
	}
	for _, exec := range []string{"shell", ""} {
		if res, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: id, ExecID: exec}); err != nil || res.GetPid() != 7 {
			t.Fatalf("Delete = %v, %v, want runc's answer", res, err)
		}
	}
}

// A sandbox's whole life goes by while the collector keeps its spans waiting.
func TestCollectorHoldsNothingUp(t *testing.T) {
	c := &collector{hold: make(chan struct{})}
	d := &nodeapi.DescribeResponse{Traceparent: traceparent, OtlpTarget: c.target(t)}
	s := newService(&runc{}, daemonSocket(t, answer(d)), "1.2.3")
	run(t, s, "a", true)
	close(c.hold)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(spans(c)); n != 2 {
		t.Errorf("%d spans, want 2", n)
	}
}

// A collector that is away, or that no one can be, costs spans and no more: Close
// returns.
func TestCollectorAway(t *testing.T) {
	for name, target := range map[string]string{"away": "unix:" + directory(t) + "/s", "no target": "unix://host/s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &nodeapi.DescribeResponse{Traceparent: traceparent, OtlpTarget: target}
			s := newService(&runc{}, daemonSocket(t, answer(d)), "1.2.3")
			run(t, s, "a", true)
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
