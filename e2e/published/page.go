package published

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/speculation"
)

// tables are what a page can have, by name. path is that of the results, as a link in the page.
var tables = map[string]struct {
	results string
	write   func(w io.Writer, results []byte, path string) error
}{
	"demo":           {"demo.json", cold},
	"demo bounds":    {"demo.json", bounds},
	"cluster":        {"cluster.json", cold},
	"cluster bounds": {"cluster.json", bounds},
	"prefetch":       {"prefetch.json", parts(prefetch.Table, prefetch.Limits, func(p map[string]prefetch.Part) result.Summary { return prefetch.Results(p).Summary() })},
	"cache":          {"cache.json", parts(cache.Table, cache.Limits, func(p map[string]cache.Part) result.Summary { return cache.Results(p).Summary() })},
	"connections":    {"connections.json", parts(connections.Table, connections.Limits, func(p map[string]connections.Part) result.Summary { return connections.Results(p).Summary() })},
	"speculation":    {"speculation.json", parts(cache.Table, speculation.Limits, func(p map[string]speculation.Part) result.Summary { return speculation.Results(p).Summary() })},
	"routing":        {"routing.json", parts(routing.Table, routing.Limits, func(p map[string]routing.Part) result.Summary { return routing.Results(p).Summary() })},
}

// block is the place of a table in a page.
var block = regexp.MustCompile(`(?s)<!-- table: ([^\n]*?) -->\n(.*?)<!-- end of table -->`)

// NotKept is what the text in a table's place must say while there are no results to make it from.
const NotKept = "raw results of this run were not kept"

// Fill returns a page with its tables made from the results in dir. page is the page's path, from
// which links go to the results.
func Fill(page, text, dir string) (string, error) {
	for _, path := range []*string{&page, &dir} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return text, err
		}
		*path = abs
	}
	if n := strings.Count(text, "<!-- table:"); n == 0 || n != len(block.FindAllString(text, -1)) {
		return text, fmt.Errorf("%s: %d tables begin, %d of them end", page, n, len(block.FindAllString(text, -1)))
	}
	var failed error
	filled := block.ReplaceAllStringFunc(text, func(old string) string {
		m := block.FindStringSubmatch(old)
		name, body := m[1], m[2]
		made, err := table(page, name, body, dir)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: table %q: %w", page, name, err))
		}
		return "<!-- table: " + name + " -->\n" + made + "<!-- end of table -->"
	})
	return filled, failed
}

func table(page, name, body, dir string) (string, error) {
	t, ok := tables[name]
	if !ok {
		return body, errors.New("there is none of this name")
	}
	path := filepath.Join(dir, t.results)
	results, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !strings.Contains(body, NotKept) {
			return body, fmt.Errorf("%s does not exist, and the text does not say that %s", path, NotKept)
		}
		return body, nil
	}
	if err != nil {
		return body, err
	}
	link, err := filepath.Rel(filepath.Dir(page), path)
	if err != nil {
		return body, err
	}
	var b bytes.Buffer
	err = t.write(&b, results, filepath.ToSlash(link))
	return b.String(), err
}

// cold writes the lines of a report.
func cold(w io.Writer, results []byte, path string) error {
	var r coldrun.Report
	if err := json.Unmarshal(results, &r); err != nil {
		return err
	}
	fmt.Fprintf(w, "```\n%s\n\n", r.Title)
	if err := coldrun.Table(w, r.Lines); err != nil {
		return err
	}
	fmt.Fprintf(w, "```\n\n%s", of(r, path))
	return nil
}

// Picture draws the report's line with the largest gain.
func Picture(w io.Writer, results []byte) error {
	var r coldrun.Report
	if err := json.Unmarshal(results, &r); err != nil {
		return err
	}
	if len(r.Lines) == 0 {
		return errors.New("the report has no lines to draw")
	}
	return slices.MaxFunc(r.Lines, func(a, b coldrun.Line) int { return cmp.Compare(a.Off-a.On, b.Off-b.On) }).Draw(w)
}

// bounds writes the checks of a report.
func bounds(w io.Writer, results []byte, path string) error {
	var r coldrun.Report
	if err := json.Unmarshal(results, &r); err != nil {
		return err
	}
	fmt.Fprint(w, "| figure | bound | measured |\n|---|---|---|\n")
	for _, c := range r.Checks {
		missed := ""
		if !c.Holds {
			missed = " (" + c.Verdict() + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s%s |\n", c.Figure, c.Bound, c.Measured, missed)
	}
	fmt.Fprintf(w, "\n%s", of(r, path))
	return nil
}

// of says what a report is of.
func of(r coldrun.Report, path string) string {
	return fmt.Sprintf("Commit `%s`, %s, on %v cores (%v), Linux %v; load at the end %v; [raw results](%s).\n",
		r.Commit, r.At.Format("2006-01-02 15:04"), r.Machine["cpus"], r.Machine["cpu"], r.Machine["kernel"], load(r), path)
}

// parts writes a benchmark's parts as the benchmark prints them.
func parts[Point any](table func(io.Writer, []Point) error, limits []result.Limit, summary func(map[string]result.Part[Point]) result.Summary) func(io.Writer, []byte, string) error {
	return func(w io.Writer, results []byte, path string) error {
		p, err := result.Parse[Point](results)
		if err != nil {
			return err
		}
		fmt.Fprint(w, "```")
		if err := result.Show(w, p, table, result.Checks(limits, summary(p))); err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "```\n\n[Raw results](%s).\n", path)
		return err
	}
}

// load is how many tasks wanted a core in the last 1, 5 and 15 minutes: many more than the machine
// has cores, and the figures are those of a busy machine.
func load(r coldrun.Report) string {
	text, _ := r.Machine["load"].(string)
	averages := strings.Fields(text)
	return strings.Join(averages[:min(3, len(averages))], ", ")
}
