package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

func TestTraces(t *testing.T) {
	now := time.Now()
	slow := trace.Summary{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Function: "default/fire", Start: now.Add(-time.Minute), DurationMS: 3052.04, Spans: 12, ColdStart: true, Status: trace.OK}
	late := trace.Summary{ID: "00f067aa0ba902b7c52a19e03f1d7a44", Function: "city/\x1b[2J", Start: now, DurationMS: 4, Spans: 1, Status: trace.Error}
	l := trace.Listing{Latest: []trace.Summary{late, slow}, Slowest: []trace.Summary{slow, late}, Kept: 2, Unsampled: 1}
	var out bytes.Buffer
	if err := printTraces(&out, l, now); err != nil {
		t.Fatal(err)
	}
	const want = `LATEST                             FUNCTION       AGO    MS       HOW
00f067aa0ba902b7c52a19e03f1d7a44   city/�[2J      0s     4.0      failed
4bf92f3577b34da6a3ce929d0e0e4736   default/fire   1m0s   3052.0   cold

SLOWEST                            FUNCTION       AGO    MS       HOW
4bf92f3577b34da6a3ce929d0e0e4736   default/fire   1m0s   3052.0   cold
00f067aa0ba902b7c52a19e03f1d7a44   city/�[2J      0s     4.0      failed

1 more request left no trace: not sampled.
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	dir := serve(t, &backend{traces: l})
	stdout, _, err := headstart(t, "", "trace", "-o", "json", "--run-dir", dir)
	var got trace.Listing
	if err != nil || json.Unmarshal([]byte(stdout), &got) != nil || len(got.Latest) != 2 || got.Kept != 2 || got.Unsampled != 1 {
		t.Errorf("%v, printed %s", err, stdout)
	}
	expect(t, "No traces yet: each sampled request through a gateway is one.\n", "trace", "--run-dir", serve(t, &backend{}))
}
