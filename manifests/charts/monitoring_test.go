package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// expressions are those of the alerts and of the dashboard, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	read := func(name string, to any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("headstart", "files", "monitoring", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	all := map[string]string{}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	read("alerts.yaml", &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all["alert "+r.Alert] = r.Expr
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %s has no severity, summary or description", r.Alert)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("headstart", "files", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+", "+target.Expr] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	if len(rules.Groups) == 0 || len(dashboard.Panels) == 0 {
		t.Fatal("there are no alerts, or no panels")
	}
	return all
}

// Alerts and the dashboard are valid, and ask for metrics that there are, by labels that these have.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{} // by metric
	for _, row := range regexp.MustCompile("(?m)^\\| `(headstart_[a-z0-9_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		names := []string{row[1]}
		if row[2] == "histogram" {
			names = []string{row[1] + "_bucket", row[1] + "_sum", row[1] + "_count"}
		}
		for _, name := range names {
			labels[name] = row[3] + "`le`"
		}
	}
	for at, text := range expressions(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if by, is := node.(*parser.AggregateExpr); is {
				grouped(t, at, by, labels)
			}
			s, ok := node.(*parser.VectorSelector)
			if !ok || strings.HasPrefix(s.Name, "process_") {
				return nil
			}
			has, known := labels[s.Name]
			if !known {
				t.Errorf("%s: there is no metric %s", at, s.Name)
			}
			for _, m := range s.LabelMatchers {
				if m.Name != "__name__" && !strings.Contains(has, "`"+m.Name+"`") {
					t.Errorf("%s: %s has no label %s", at, s.Name, m.Name)
				}
			}
			return nil
		})
	}
}

// grouped checks that the metrics below a sum have the labels that it is grouped by. instance is Prometheus' own.
func grouped(t *testing.T, at string, sum *parser.AggregateExpr, labels map[string]string) {
	t.Helper()
	parser.Inspect(sum.Expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			for _, name := range sum.Grouping {
				if name != "instance" && !strings.Contains(labels[s.Name], "`"+name+"`") {
					t.Errorf("%s: %s has no label %s to group by", at, s.Name, name)
				}
			}
		}
		return nil
	})
}
