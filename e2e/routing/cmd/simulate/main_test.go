package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestATableHasAColumnForEachPolicy(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-requests", "200", "-cases", "testbed, 5 users, 50ms", "-policies", "^(FaaSt|oracle)$"}, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "FaaSt") || !strings.Contains(lines[0], "oracle") || !strings.Contains(lines[1], "testbed, 5 users, 50ms±10ms, 2s") {
		t.Errorf("printed\n%s", &out)
	}
}

func TestEachResultIsALineOfJSON(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-json", "-requests", "200", "-cases", "^testbed: .* 5 users, 70ms", "-policies", "^Headstart$"}, &out); err != nil {
		t.Fatal(err)
	}
	var r row
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	if r.Policy != "Headstart" || r.Requests == 0 || r.Window != 2 || r.P50 <= 0 || r.P99 < r.P50 {
		t.Errorf("the result is %+v", r)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "many"}, {"-nodes", "1"}, {"-cases", "("}, {"-policies", "["}} {
		if err := run(args, &strings.Builder{}); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
