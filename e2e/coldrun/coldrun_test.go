package coldrun

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
	"github.com/headstart-mesh/headstart/e2e/timeline"
)

const msec = time.Millisecond

// off and on are requests with the parts that the report looks at.
func off(alpha, beta, input, exec, total time.Duration) Request {
	return Request{Total: total, Input: input, Exec: exec, origin: "store", Phases: trace.Phases{Alpha: alpha, Beta: beta}}
}

func on(alpha, beta, delta, exec, total time.Duration) Request {
	return Request{Total: total, Exec: exec, origin: "body", Phases: trace.Phases{Alpha: alpha, Beta: beta, Delta: delta}}
}

func TestTheBoundIsOfPartsThatDoNotDisturbEachOther(t *testing.T) {
	r := Result{
		Off: []Request{off(1*msec, 100*msec, 400*msec, 50*msec, 560*msec), off(3*msec, 300*msec, 600*msec, 70*msec, 990*msec), off(2*msec, 200*msec, 500*msec, 60*msec, 770*msec)},
		On:  []Request{on(1*msec, 900*msec, 450*msec, 50*msec, 600*msec), on(1*msec, 900*msec, 440*msec, 50*msec, 600*msec), on(1*msec, 900*msec, 460*msec, 50*msec, 600*msec)},
	}
	// Medians of the requests without Headstart, but the faster of the two transfers.
	want := Components{Alpha: 2 * msec, Beta: 200 * msec, Delta: 450 * msec, Gamma: 60 * msec}
	got := r.components()
	if got != want {
		t.Errorf("components are %+v, want %+v", got, want)
	}
	if b := got.Bound(); b != 512*msec {
		t.Errorf("bound is %v", b)
	}
}

func TestOneSlowRequestShowsInTheRatio(t *testing.T) {
	fast := on(0, 100*msec, 400*msec, 100*msec, 550*msec)
	slow := on(0, 100*msec, 400*msec, 100*msec, 1050*msec)
	offs := []Request{off(0, 100*msec, 400*msec, 100*msec, 600*msec)}
	for name, c := range map[string]struct {
		on   []Request
		want float64
	}{
		"all at the bound": {[]Request{fast, fast, fast}, 1},
		"one slow":         {[]Request{fast, slow, fast}, 2},
	} {
		if got := (Result{Off: offs, On: c.on}).Row(50 * msec).Ratio; got != c.want {
			t.Errorf("%s: ratio %v, want %v", name, got, c.want)
		}
	}
}

// Of relayed requests the medians alone count: nobody knows the parts of a single one.
func TestRelayedRequestsAreMeasuredByTheirMedians(t *testing.T) {
	offs := []Request{off(0, 800*msec, 400*msec, 100*msec, 1300*msec)}
	relayed := func(total time.Duration) Request {
		return Request{Total: total, Exec: 100 * msec, origin: "body", Phases: trace.Phases{Alpha: 5 * msec, Delta: 900 * msec, Relay: total - 50*msec}}
	}
	r := Result{Case: Case{Relayed: true}, Off: offs, On: []Request{relayed(950 * msec), relayed(2000 * msec), relayed(950 * msec)}}
	if got := r.Row(50 * msec).Ratio; got != 1 {
		t.Errorf("ratio %v", got)
	}
	if l := withoutTrace(offs[0], "x"); l.Bars[1].Start != 800*msec || l.Bars[2].Start != 1200*msec {
		t.Errorf("bars %+v", l.Bars)
	}
}

func TestTheFunctionsFetchIsABarOfItsOwn(t *testing.T) {
	start := time.Unix(1700000000, 0)
	span := func(name, id, parent, service string, from, to time.Duration) trace.Span {
		return trace.Span{Name: name, ID: id, Parent: parent, Service: service, Start: start.Add(from), End: start.Add(to)}
	}
	q := off(1*msec, 99*msec, 400*msec, 50*msec, 560*msec)
	q.Trace = trace.New("t", []trace.Span{
		span("gateway", "1", "", "headstart-gateway", 0, 560*msec), span("placement", "2", "1", "headstart-controlplane", 0, 1*msec),
		span("runtime.start", "3", "1", "headstart-node", 1*msec, 100*msec), span("execute", "4", "1", "headstart-node", 100*msec, 560*msec)})
	var fetch, execute timeline.Bar
	for _, b := range withOwnFetch(q, "x").Bars {
		switch b.Phase {
		case timeline.Transfer:
			fetch = b
		case timeline.Execute:
			execute = b
		}
	}
	if fetch.Start != 100*msec || fetch.End != 500*msec || execute.Start != 500*msec || execute.End != 560*msec {
		t.Errorf("fetch %v to %v, execution %v to %v", fetch.Start, fetch.End, execute.Start, execute.End)
	}
}

func TestServerTiming(t *testing.T) {
	in, ex, origin, err := ServerTiming(`input;dur=12.500;desc="store", exec;dur=3.250`)
	if in != 12500*time.Microsecond || ex != 3250*time.Microsecond || origin != "store" || err != nil {
		t.Errorf("%v %v %q %v", in, ex, origin, err)
	}
	for _, h := range []string{"", "exec;dur=1", `input;dur=x;desc="body", exec;dur=1`} {
		if _, _, _, err := ServerTiming(h); err == nil {
			t.Errorf("%q is taken", h)
		}
	}
}

func TestWrongAnswersAreFound(t *testing.T) {
	var video bytes.Buffer
	truth, err := mjpeggen.Generate(&video, 1_000_000, Seed)
	if err != nil {
		t.Fatal(err)
	}
	flame, burns := truth.Flame(0)
	if !burns || truth.Frames > analysedEvery {
		t.Fatalf("the video has %d frames, and frame 0 burns: %v", truth.Frames, burns)
	}
	type region struct{ X, Y, W, H int }
	type frame struct {
		Frame   int      `json:"frame"`
		Regions []region `json:"regions"`
	}
	right := []frame{{0, []region{{flame.Min.X, flame.Min.Y, flame.Dx(), flame.Dy()}}}}
	elsewhere := []frame{{0, []region{{flame.Max.X, flame.Max.Y, 1, 1}}}}
	c := Case{SHA256: "abc", Truth: &truth}
	for name, a := range map[string]struct {
		sha256 string
		frames int
		fire   []frame
		ok     bool
	}{
		"right":          {"abc", truth.Frames, right, true},
		"other video":    {"abd", truth.Frames, right, false},
		"part of it":     {"abc", truth.Frames - 1, right, false},
		"no fire":        {"abc", truth.Frames, nil, false},
		"fire elsewhere": {"abc", truth.Frames, elsewhere, false},
	} {
		answer, err := json.Marshal(map[string]any{"sha256": a.sha256, "frames": a.frames, "fire": a.fire})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.check(answer); (err == nil) != a.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.check([]byte("oops")) == nil {
		t.Error("no JSON is taken")
	}
}
