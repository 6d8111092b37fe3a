package published_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/published"
)

// write makes a file below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyResultsOfACommitArePublished(t *testing.T) {
	for name, c := range map[string]struct{ file, text, refused string }{
		"a run of a commit":           {"demo/summary.json", `{"commit": "abc1234"}`, ""},
		"parts of commits":            {"bench/routing.json", `{"parts": {"cases": {"commit": "abc1234"}, "drain": {"commit": "def5678"}}}`, ""},
		"a run with changes":          {"demo/summary.json", `{"commit": "abc1234-dirty"}`, "abc1234-dirty"},
		"a run of `go run`":           {"bench/cluster.json", `{"commit": "0.1.0-dev"}`, "names no commit"},
		"a run without git":           {"bench/cluster.json", `{"commit": "dev"}`, "names no commit"},
		"one part of an older format": {"bench/prefetch.json", `{"parts": {"chain": {"commit": "abc1234"}, "hot": {}}}`, "hot names no commit"},
		"no results at all":           {"other.json", `{"commit": "abc1234"}`, "has no results"},
		"half a file":                 {"demo/summary.json", `{"commit": "abc`, "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			out, dir := t.TempDir(), t.TempDir()
			write(t, out, c.file, c.text)
			taken, err := published.Take(out, dir)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || len(taken) != 1 {
				t.Fatalf("took %v: %v", taken, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, taken[0])); err != nil || string(got) != c.text {
				t.Errorf("published %q: %v", got, err)
			}
		})
	}
}

const demo = `{"title": "Requests, in ms", "commit": "abc1234", "at": "2026-01-02T03:04:05Z", "machine": {"cpus": 2, "cpu": "Z80", "kernel": "6.1", "load": "0.50 1.25 2.00 1/99 7"},
 "summary": {}, "lines": [{"label": "1 MB", "alpha": 1, "beta": 100, "delta": 200, "gamma": 9, "bound": 210, "off": 420, "on": 231}],
 "checks": [{"figure": "answers wrong", "bound": "0", "measured": "0", "holds": true}, {"figure": "ratio", "bound": "<= 1.05", "measured": "1.10", "holds": false}]}`

const routing = `{"summary": {}, "parts": {"cases": {"commit": "def5678", "repetitions": 2, "at": "2026-01-02T03:04:05Z", "took_s": 61,
 "points": [{"rtt_ns": 50000000, "jitter_ns": 10000000, "users": 5, "variant": "FaaSt", "sent": 10, "completed": 10, "p50_ms": 5.3}]}}}`

func page(tables ...string) string {
	text := "# Page\n"
	for _, name := range tables {
		text += "\n<!-- table: " + name + " -->\nof yesterday\n<!-- end of table -->\n"
	}
	return text + "\nafter\n"
}

func TestTablesAreMadeFromTheResults(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "docs/results")
	write(t, results, "demo.json", demo)
	write(t, results, "routing.json", routing)
	got, err := published.Fill(filepath.Join(dir, "README.md"), page("demo", "demo bounds", "routing"), results)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Page\n", "\nafter\n", "Requests, in ms", "420    210         2.00", "231                1.10",
		"Commit `abc1234`, 2026-01-02 03:04, on 2 cores (Z80), Linux 6.1; load at the end 0.50, 1.25, 2.00; [raw results](docs/results/demo.json).",
		"| answers wrong | 0 | 0 |\n", "| ratio | <= 1.05 | 1.10 (MISSED) |\n",
		"cases, commit def5678, 2 repetitions", "50 +- 10", "[Raw results](docs/results/routing.json).",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "of yesterday") {
		t.Error("the old table is still there")
	}
	again, err := published.Fill(filepath.Join(dir, "README.md"), got, results)
	if err != nil || again != got {
		t.Errorf("the second time another page: %v\n%s", err, again)
	}
}

func TestATableWithoutResultsSaysSo(t *testing.T) {
	dir := t.TempDir()
	kept := strings.Replace(page("demo"), "of yesterday", "The "+published.NotKept+".", 1)
	if got, err := published.Fill("README.md", kept, dir); err != nil || got != kept {
		t.Errorf("%v\n%s", err, got)
	}
	for name, text := range map[string]string{"silent": page("demo"), "unknown": page("demoo"), "no end": "<!-- table: demo -->\n" + kept, "no table": page()} {
		if _, err := published.Fill("README.md", text, dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestThePictureIsOfTheLineThatGainsMost(t *testing.T) {
	const lines = `{"lines": [{"label": "1 MB", "off": 420, "on": 231}, {"label": "32 MB", "alpha": 2, "beta": 900, "delta": 700, "gamma": 40, "bound": 942, "off": 1800, "on": 960},
		{"label": "128 MB", "off": 5000, "on": 4900}]}`
	var svg bytes.Buffer
	if err := published.Picture(&svg, []byte(lines)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"32 MB, off", "1800 ms, bound 942 ms", "the function fetches 858 ms", "32 MB, on", "960 ms, bound 942 ms",
		"Headstart fetches 700 ms", "execute 40 ms",
	} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("%q is not in\n%s", want, svg.String())
		}
	}
	if strings.Contains(svg.String(), "128 MB") {
		t.Error("the picture has other lines, too")
	}
	if published.Picture(&svg, []byte(`{}`)) == nil {
		t.Error("a report without lines is drawn")
	}
}
