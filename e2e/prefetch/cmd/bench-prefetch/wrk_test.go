package main

import "testing"

func TestParseWrk(t *testing.T) {
	const head = "Running 5s test @ http://10.221.0.11:8080/healthz\n  2 threads and 1000 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n" +
		"    Latency   106.40ms   64.09ms 768.31ms   77.38%\n  47210 requests in 5.06s, 7.61MB read\n"
	const rate = "Requests/sec:   9330.21\nTransfer/sec:      1.50MB\n"
	for name, c := range map[string]struct {
		out  string
		want wrkReport
		ok   bool
	}{
		"all answered": {head + rate, wrkReport{rps: 9330.21}, true},
		"some lost": {head + "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 5\n" + rate,
			wrkReport{rps: 9330.21, lost: 15}, true},
		"nobody there": {"unable to connect to 10.221.0.11:8080 Connection refused\n", wrkReport{}, false},
	} {
		got, err := parseWrk(c.out)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestSizesAreChosen(t *testing.T) {
	if sizes, err := (options{sizes: "1,20"}).sizesOr(nil); err != nil || len(sizes) != 2 || sizes[1] != 20 {
		t.Errorf("%v, %v", sizes, err)
	}
	for _, wrong := range []string{"0", "1,", "1MB", "-1"} {
		if _, err := (options{sizes: wrong}).sizesOr(nil); err == nil {
			t.Errorf("sizes %q are taken", wrong)
		}
	}
}
