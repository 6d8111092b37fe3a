package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
)

const msec = time.Millisecond

func TestTheSummaryHasTheNumbersThatScriptsRead(t *testing.T) {
	requests := []coldrun.Request{{Total: 551 * msec, Input: 400 * msec, Exec: 50 * msec, Phases: trace.Phases{Alpha: 1 * msec, Beta: 100 * msec}}}
	s := summarize([]coldrun.Result{{Case: coldrun.Case{Key: "32"}, Off: requests, Wrong: 2, On: []coldrun.Request{
		{Total: 401 * msec, Exec: 50 * msec, Phases: trace.Phases{Alpha: 1 * msec, Beta: 90 * msec, Delta: 300 * msec}}}}},
		hot{with: 600 * time.Microsecond, without: 500 * time.Microsecond, gatewayMiB: 3, filtersMiB: 80, refused: 200 * msec}, 4)
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
		"total_to_bound_max": 1, "hot_p50_ratio": 1.2, "hot_p50_ms": 0.6, "answers_wrong": 2, "trace_gap_max_ms": 0, "gateway_memory_growth_mib": 3, "gateway_filters_mib": 80, "gateway_restart_refused_ms": 200, "answers_lost": 4, "again_downloaded_bytes": 0,
		"link_delay_ms": 20, "link_rate_mbit_s": 250, "repetitions": repetitions, "seed": coldrun.Seed,
		"s3_32_off_ms": 551, "s3_32_on_ms": 401, "s3_32_alpha_ms": 1, "s3_32_beta_ms": 100, "s3_32_delta_ms": 300, "s3_32_gamma_ms": 50,
	}
	if d := cmp.Diff(want, got.Summary); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
}

// Who sees no gain is told so, not left to compare the columns.
func TestTheDemoSaysWhenOnIsNotFaster(t *testing.T) {
	result := func(label string, off, on time.Duration) coldrun.Result {
		return coldrun.Result{Case: coldrun.Case{Label: label}, Off: []coldrun.Request{{Total: off * msec}}, On: []coldrun.Request{{Total: on * msec}}}
	}
	for _, tt := range []struct {
		results []coldrun.Result
		want    string
		holds   bool
	}{
		{[]coldrun.Result{result("1 MB", 500, 400), result("32 MB", 900, 600)}, "with every input", true},
		{[]coldrun.Result{result("1 MB", 400, 400), result("32 MB", 900, 600)}, "1 MB: on 400 ms, off 400 ms", false},
		{[]coldrun.Result{result("1 MB", 400, 500), result("32 MB", 600, 900)}, "1 MB: on 500 ms, off 400 ms; 32 MB: on 900 ms, off 600 ms", false},
	} {
		if got := summarize(tt.results, hot{without: msec}, 0).checks()[0]; got.Measured != tt.want || got.Holds != tt.holds {
			t.Errorf("got %+v, want %s", got, tt.want)
		}
	}
}
