package connections

import (
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// spans has all that the tests' servers record.
var spans = tracetest.NewSpanRecorder()

func linked(trace string) (all []sdktrace.ReadOnlySpan) {
	for _, s := range spans.Ended() {
		if links := s.Links(); trace == "" && len(links) == 0 || len(links) == 1 && links[0].SpanContext.TraceID().String() == trace {
			all = append(all, s)
		}
	}
	return all
}

// A connection that a program asks for while it starts is told of together with the first request, which waits for it.
// Without one it is told of at the sandbox's end.
func TestTheSpanOfAColdStart(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	e := newEcho(t)
	for _, origin := range []string{"node", "sandbox"} {
		spans.Reset()
		r := newRig(t, e.at(origin))
		r.describe("cart", wants("socket", "ledger"))
		ask(t, r.dial("ledger", "tcp.sock"))
		asked := time.Now()
		r.requests <- "00-" + trace + "-b7ad6b7169203331-01"
		await(t, "the connection is linked to the first request", func() bool { return len(linked(trace)) == 1 })
		if s := linked(trace)[0]; s.EndTime().After(asked) {
			t.Errorf("it ended %v after the program was connected", s.EndTime().Sub(asked))
		}
		ask(t, r.dial("ledger", "tcp.sock"))
		await(t, "a later one is told of at once", func() bool { return len(linked("")) == 1 })
		r.stop()
	}
	r := newRig(t, e.at("node"))
	spans.Reset()
	r.describe("cart", wants("socket", "ledger"))
	ask(t, r.dial("ledger", "tcp.sock"))
	r.Release(pod)
	await(t, "one without a request is told of", func() bool { return len(linked("")) == 1 })
}

// Only so many are held.
func TestSpansAreHeld(t *testing.T) {
	var f first
	if f.hold(nil) || !f.begin() || f.begin() {
		t.Error("a sandbox that runs is waited for, or one that starts is not")
	}
	told := 0
	for range heldMost {
		if !f.hold(func(string) { told++ }) {
			t.Error("it is not held")
		}
	}
	if f.hold(nil) {
		t.Error("another one is held")
	}
	if f.over(""); told != heldMost || f.hold(nil) {
		t.Errorf("%d are told of", told)
	}
}
