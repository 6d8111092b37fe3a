package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
)

const msec = time.Millisecond

// off and on are requests with the parts that the report looks at.
func off(alpha, beta, input, exec, total time.Duration) request {
	return request{total: total, input: input, exec: exec, origin: "store", phases: trace.Phases{Alpha: alpha, Beta: beta}}
}

func on(alpha, beta, delta, exec, total time.Duration) request {
	return request{total: total, exec: exec, origin: "body", phases: trace.Phases{Alpha: alpha, Beta: beta, Delta: delta}}
}

func TestTheBoundIsOfPartsThatDoNotDisturbEachOther(t *testing.T) {
	r := result{
		off: []request{off(1*msec, 100*msec, 400*msec, 50*msec, 560*msec), off(3*msec, 300*msec, 600*msec, 70*msec, 990*msec), off(2*msec, 200*msec, 500*msec, 60*msec, 770*msec)},
		on:  []request{on(1*msec, 900*msec, 450*msec, 50*msec, 600*msec), on(1*msec, 900*msec, 440*msec, 50*msec, 600*msec), on(1*msec, 900*msec, 460*msec, 50*msec, 600*msec)},
	}
	// Medians of the requests without Headstart, but the faster of the two transfers.
	want := components{alpha: 2 * msec, beta: 200 * msec, delta: 450 * msec, gamma: 60 * msec}
	got := r.components()
	if got != want {
		t.Errorf("components are %+v, want %+v", got, want)
	}
	if b := got.bound(); b != 512*msec {
		t.Errorf("bound is %v", b)
	}
}

func TestOneSlowRequestShowsInTheRatio(t *testing.T) {
	fast := on(0, 100*msec, 400*msec, 100*msec, 550*msec)
	slow := on(0, 100*msec, 400*msec, 100*msec, 1050*msec)
	offs := []request{off(0, 100*msec, 400*msec, 100*msec, 600*msec)}
	for name, c := range map[string]struct {
		on   []request
		want float64
	}{
		"all at the bound": {[]request{fast, fast, fast}, 1},
		"one slow":         {[]request{fast, slow, fast}, 2},
	} {
		if got := (result{off: offs, on: c.on}).row().ratio; got != c.want {
			t.Errorf("%s: ratio %v, want %v", name, got, c.want)
		}
	}
}

func TestTheSummaryHasTheNumbersThatScriptsRead(t *testing.T) {
	requests := []request{off(1*msec, 100*msec, 400*msec, 50*msec, 551*msec)}
	s := summarize([]result{{testCase: testCase{key: "32"}, off: requests, on: []request{on(1*msec, 90*msec, 300*msec, 50*msec, 401*msec)}, wrong: 2}},
		hot{with: 600 * time.Microsecond, without: 500 * time.Microsecond, gatewayMiB: 3})
	path := filepath.Join(t.TempDir(), "summary.json")
	if err := s.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Summary map[string]float64 }
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"total_to_bound_max": 1, "hot_p50_ratio": 1.2, "hot_p50_ms": 0.6, "answers_wrong": 2, "trace_gap_max_ms": 0, "gateway_memory_growth_mib": 3,
		"link_delay_ms": 20, "link_rate_mbit_s": 250, "repetitions": repetitions, "seed": seed,
		"s3_32_off_ms": 551, "s3_32_on_ms": 401, "s3_32_alpha_ms": 1, "s3_32_beta_ms": 100, "s3_32_delta_ms": 300, "s3_32_gamma_ms": 50,
	}
	if d := cmp.Diff(want, got.Summary); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
}

func TestTheFunctionsFetchIsABarOfItsOwn(t *testing.T) {
	start := time.Unix(1700000000, 0)
	span := func(name, id, parent, service string, from, to time.Duration) trace.Span {
		return trace.Span{Name: name, ID: id, Parent: parent, Service: service, Start: start.Add(from), End: start.Add(to)}
	}
	q := off(1*msec, 99*msec, 400*msec, 50*msec, 560*msec)
	q.trace = trace.New("t", []trace.Span{
		span("gateway", "1", "", "headstart-gateway", 0, 560*msec), span("placement", "2", "1", "headstart-controlplane", 0, 1*msec),
		span("runtime.start", "3", "1", "headstart-node", 1*msec, 100*msec), span("execute", "4", "1", "headstart-node", 100*msec, 560*msec)})
	var fetch, execute trace.Bar
	for _, b := range withOwnFetch(q, "x").Bars {
		switch b.Phase {
		case trace.Transfer:
			fetch = b
		case trace.Execute:
			execute = b
		}
	}
	if fetch.Start != 100*msec || fetch.End != 500*msec || execute.Start != 500*msec || execute.End != 560*msec {
		t.Errorf("fetch %v to %v, execution %v to %v", fetch.Start, fetch.End, execute.Start, execute.End)
	}
}

func TestServerTiming(t *testing.T) {
	in, ex, origin, err := serverTiming(`input;dur=12.500;desc="store", exec;dur=3.250`)
	if in != 12500*time.Microsecond || ex != 3250*time.Microsecond || origin != "store" || err != nil {
		t.Errorf("%v %v %q %v", in, ex, origin, err)
	}
	for _, h := range []string{"", "exec;dur=1", `input;dur=x;desc="body", exec;dur=1`} {
		if _, _, _, err := serverTiming(h); err == nil {
			t.Errorf("%q is taken", h)
		}
	}
}

func TestWrongAnswersAreFound(t *testing.T) {
	var video bytes.Buffer
	truth, err := mjpeggen.Generate(&video, 1_000_000, seed)
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
	c := testCase{sha256: "abc", truth: &truth}
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
		if err := check(c, answer); (err == nil) != a.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if check(c, []byte("oops")) == nil {
		t.Error("no JSON is taken")
	}
}
