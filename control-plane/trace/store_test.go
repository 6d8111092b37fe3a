package trace_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

func text(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func attribute(key string, v *commonpb.AnyValue) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: v}
}

// otlp is a span of trace number t.
func otlp(t, id uint64, name string, attributes ...*commonpb.KeyValue) *tracepb.Span {
	return &tracepb.Span{
		TraceId:           binary.BigEndian.AppendUint64(make([]byte, 8), t),
		SpanId:            binary.BigEndian.AppendUint64(nil, id),
		Name:              name,
		StartTimeUnixNano: uint64(epoch.UnixNano()),
		EndTimeUnixNano:   uint64(epoch.Add(250 * time.Millisecond).UnixNano()),
		Attributes:        attributes,
	}
}

func number(t uint64) string { return fmt.Sprintf("%032x", t) }

func request(spans ...*tracepb.Span) *collectorpb.ExportTraceServiceRequest {
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attribute("service.name", text("headstart-node"))}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}}}
}

func export(t testing.TB, s collectorpb.TraceServiceServer, spans ...*tracepb.Span) *collectorpb.ExportTraceServiceResponse {
	t.Helper()
	resp, err := s.Export(t.Context(), request(spans...))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestStoreKeepsWhatASpanSays(t *testing.T) {
	store := trace.NewStore()
	p := otlp(7, 2, "fetch",
		attribute("headstart.request", text(requestID)),
		attribute("faas.coldstart", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}),
		attribute("headstart.input.bytes", &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 1 << 25}}),
		attribute("ratio", &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.5}}),
		attribute("nan", &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: math.NaN()}}),
		attribute("etag", &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{0xbe, 0xef}}}),
		attribute("list", &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{text("a"), text("b")}}}}),
		attribute("map", &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{attribute("k", text("v"))}}}}),
		attribute("ratio", text("a second one")),
	)
	p.ParentSpanId = []byte{0, 0, 0, 0, 0, 0, 0, 1}
	p.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "NoSuchKey"}
	if resp := export(t, store, p); resp.PartialSuccess != nil {
		t.Fatal(resp)
	}
	got, ok := store.Get(number(7))
	want := trace.Trace{ID: number(7), Spans: []trace.Span{{
		Name: "fetch", Service: "headstart-node", ID: "0000000000000002", Parent: "0000000000000001",
		Start: epoch, End: epoch.Add(250 * ms), DurationMS: 250, Status: trace.Error, Message: "NoSuchKey",
		Attributes: map[string]any{
			"headstart.request": requestID, "faas.coldstart": true, "headstart.input.bytes": int64(1 << 25), "ratio": 0.5, "nan": "NaN",
			"etag": "beef", "list": []any{"a", "b"}, "map": map[string]any{"k": "v"},
		},
	}}}
	if d := cmp.Diff(want, got); !ok || d != "" {
		t.Error(ok, d)
	}
}

func TestStoreFindsByRequestAndInvocation(t *testing.T) {
	store := trace.NewStore()
	export(t, store, otlp(3, 1, "gateway", attribute("headstart.request", text("-"))))
	export(t, store, otlp(1, 1, "activation", attribute("headstart.request", text(requestID))))
	export(t, store, otlp(2, 1, "activation", attribute("faas.invocation_id", text(two))))
	for id, want := range map[string]string{requestID: number(1), number(1): number(1), two: number(2), "": "", "-": "", "nobody": ""} {
		got, ok := store.Get(id)
		if got.ID != want || ok != (want != "") {
			t.Errorf("Get(%q) = trace %q, want %q", id, got.ID, want)
		}
	}
	export(t, store, otlp(1, 2, "activation", attribute("headstart.request", text(three))))
	if got, _ := store.Get(requestID); len(got.Spans) != 1 {
		t.Errorf("a request's id gives spans of another: %v", names(got))
	}
	if got, _ := store.Get(number(1)); len(got.Spans) != 2 {
		t.Errorf("a trace's id gives all: %v", names(got))
	}
}

func TestStoreRefusesWhatIsNoSpan(t *testing.T) {
	good := func(change func(*tracepb.Span)) *tracepb.Span {
		p := otlp(1, 1, "fetch")
		change(p)
		return p
	}
	for name, p := range map[string]*tracepb.Span{
		"empty":           {},
		"short trace id":  good(func(p *tracepb.Span) { p.TraceId = p.TraceId[1:] }),
		"zero trace id":   good(func(p *tracepb.Span) { clear(p.TraceId) }),
		"long span id":    good(func(p *tracepb.Span) { p.SpanId = append(p.SpanId, 1) }),
		"zero span id":    good(func(p *tracepb.Span) { clear(p.SpanId) }),
		"no start":        good(func(p *tracepb.Span) { p.StartTimeUnixNano = 0 }),
		"start too large": good(func(p *tracepb.Span) { p.StartTimeUnixNano = math.MaxUint64 }),
		"end too large":   good(func(p *tracepb.Span) { p.EndTimeUnixNano = math.MaxInt64 + 1 }),
	} {
		store := trace.NewStore()
		resp := export(t, store, p, otlp(9, 1, "good"))
		if resp.GetPartialSuccess().GetRejectedSpans() != 1 || resp.GetPartialSuccess().GetErrorMessage() == "" {
			t.Errorf("%s: %v", name, resp)
		}
		if got := store.Recent(10); len(got) != 1 || got[0].ID != number(9) {
			t.Errorf("%s: the store has %v", name, got)
		}
	}
	unfinished := good(func(p *tracepb.Span) { p.EndTimeUnixNano = 0 })
	store := trace.NewStore()
	export(t, store, unfinished)
	if got, _ := store.Get(number(1)); got.Spans[0].Duration() != 0 {
		t.Errorf("a span without end: %v", got)
	}
}

func TestStoreTakesASpanOnce(t *testing.T) {
	store := trace.NewStore()
	export(t, store, otlp(1, 1, "first"), otlp(1, 1, "again"))
	export(t, store, otlp(1, 1, "again"), otlp(2, 1, "another trace's"))
	if got, _ := store.Get(number(1)); len(got.Spans) != 1 || got.Spans[0].Name != "first" {
		t.Error(names(got))
	}
}

func TestStoreDropsTheOldestTraceFirst(t *testing.T) {
	store := trace.NewStore()
	const more = 3
	for i := uint64(1); i <= trace.TracesLimit+more; i++ {
		export(t, store, otlp(i, 1, "fetch", attribute("headstart.request", text(number(1<<32+i)))))
	}
	recent := store.Recent(trace.TracesLimit + more)
	if len(recent) != trace.TracesLimit || recent[0].ID != number(trace.TracesLimit+more) || recent[len(recent)-1].ID != number(1+more) {
		t.Errorf("%d traces, from %s to %s", len(recent), recent[0].ID, recent[len(recent)-1].ID)
	}
	for i, want := range map[uint64]bool{1: false, more: false, more + 1: true} {
		if _, ok := store.Get(number(1<<32 + i)); ok != want {
			t.Errorf("request %d known: %v, want %v", i, ok, want)
		}
	}
	if got := store.Recent(2); len(got) != 2 {
		t.Errorf("Recent(2) returns %d", len(got))
	}
}

func TestStoreBoundsATrace(t *testing.T) {
	store := trace.NewStore()
	for i := uint64(1); i <= trace.SpansLimit+5; i++ {
		export(t, store, otlp(1, i, "fetch"))
	}
	got, _ := store.Get(number(1))
	if len(got.Spans) != trace.SpansLimit || got.Dropped != 5 {
		t.Errorf("%d spans, %d dropped", len(got.Spans), got.Dropped)
	}
}

func TestStoreBoundsASpan(t *testing.T) {
	long := strings.Repeat("ä", trace.ValueLimit)
	p := otlp(1, 1, long, attribute("headstart.request", text(long)))
	p.Status = &tracepb.Status{Message: long}
	for i := range 100 {
		p.Attributes = append(p.Attributes, attribute(fmt.Sprint(i), text(long)))
	}
	deep := text("bottom")
	for range 1000 {
		deep = &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{deep}}}}
	}
	store := trace.NewStore()
	export(t, store, p, otlp(1, 2, "deep", attribute("deep", deep)))
	got, _ := store.Get(number(1))
	for _, s := range got.Spans {
		raw, err := json.Marshal(s)
		if err != nil || len(raw) > trace.AttributesLimit+3*trace.ValueLimit {
			t.Errorf("%d bytes of JSON: %v", len(raw), err)
		}
		if len(s.Name) > trace.ValueLimit || len(s.Message) > trace.ValueLimit || strings.ContainsRune(s.Name, '\uFFFD') {
			t.Errorf("name of %d bytes, message of %d", len(s.Name), len(s.Message))
		}
	}
	if _, ids, _ := store.Held(); ids != 0 {
		t.Error("a request id that is none is kept as a key")
	}
}

func TestStoreBoundsItsMemory(t *testing.T) {
	store := trace.NewStore()
	fat := make([]*commonpb.KeyValue, 0, 16)
	for i := range cap(fat) {
		fat = append(fat, attribute(fmt.Sprint(i), text(strings.Repeat("x", trace.ValueLimit))))
	}
	const fatTraces = 2*trace.MemoryLimit/(trace.SpansLimit*trace.AttributesLimit) + 2
	for i := uint64(1); i <= fatTraces; i++ {
		for j := uint64(1); j <= trace.SpansLimit; j++ {
			export(t, store, otlp(i, j, "fat", fat...))
		}
		if _, _, memory := store.Held(); memory > trace.MemoryLimit {
			t.Fatalf("%d bytes after %d traces", memory, i)
		}
	}
	traces, _, memory := store.Held()
	if traces < 2 || memory < trace.MemoryLimit/2 {
		t.Errorf("only %d traces of %d bytes are left", traces, memory)
	}
	if last, ok := store.Get(number(fatTraces)); !ok || len(last.Spans) != trace.SpansLimit {
		t.Error("the newest trace is not whole")
	}
}

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	store := trace.NewStore()
	var senders sync.WaitGroup
	for sender := range uint64(4) {
		senders.Go(func() {
			for i := uint64(1); i <= 200; i++ {
				export(t, store, otlp(i, sender+1, "fetch", attribute("headstart.request", text(number(1<<32+i)))))
				store.Get(number(1<<32 + i))
				store.Recent(3)
			}
		})
	}
	senders.Wait()
	for i := uint64(1); i <= 200; i++ {
		if got, _ := store.Get(number(i)); len(got.Spans) != 4 {
			t.Fatalf("trace %d has %d spans", i, len(got.Spans))
		}
	}
}

// FuzzExport sends any bytes that are an export request and reads them in every way.
func FuzzExport(f *testing.F) {
	for _, req := range []*collectorpb.ExportTraceServiceRequest{
		{},
		request(otlp(1, 1, "gateway"), otlp(1, 2, "fetch", attribute("headstart.request", text(requestID)))),
		request(otlp(1, 1, "\x1b[2J</svg>\u202e", attribute("headstart.degraded", text("a\nb")))),
	} {
		raw, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req collectorpb.ExportTraceServiceRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		store := trace.NewStore()
		if _, err := store.Export(context.Background(), &req); err != nil {
			t.Fatal(err)
		}
		for _, sum := range store.Recent(trace.TracesLimit) {
			tr, ok := store.Get(sum.ID)
			if !ok || len(tr.Spans) == 0 || len(tr.Spans) > trace.SpansLimit {
				t.Fatalf("trace %s: %d spans", sum.ID, len(tr.Spans))
			}
			if _, err := json.Marshal(tr); err != nil {
				t.Fatal(err)
			}
			checkWaterfall(t, tr, trace.WaterfallOptions{Width: trace.WidthMin})
		}
		if _, _, memory := store.Held(); memory > trace.MemoryLimit {
			t.Fatalf("%d bytes", memory)
		}
	})
}
