package trust

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/headstart-mesh/headstart/e2e/result"
)

// Point is an attack that was tried.
type Point struct {
	Role    Role   `json:"role"`
	Asset   Asset  `json:"asset"`
	Package string `json:"package"`
	Test    string `json:"test"`
	Won     bool   `json:"won"`
}

// Part is what one run of tests tells.
type Part = result.Part[Point]

// Results are the parts by their names.
type Results map[string]Part

// Measurements are the arguments of the `go test` that measures what defences cost, and what a flood leaves others.
var Measurements = []string{
	"test", "-count=1", "-v", "-run", "^TestCost$", "-bench", "FairColdP99", "-benchtime", "1x",
	"./shim/nodeapi/capability", "./shim/ingress",
}

// Limits of the figures. Tests log those that are not counted here, as a line of JSON.
var Limits = []result.Limit{
	{Name: "attacks_tried", Limit: 40, AtLeast: true, Counts: true},
	{Name: "attacks_won", Counts: true},
	{Name: "others_annotation_to_effect_p99_ms", Limit: 1000},
	{Name: "others_cold_failed", Counts: true},
	{Name: "daemon_rss_mib_10000_functions", Limit: 64},
	{Name: "fair_cold_p99_ratio", Limit: 2},
	{Name: "capability_added_us", Limit: 100},
	{Name: "fuzz_targets", Limit: 65, AtLeast: true, Counts: true},
	{Name: "fuzz_crashers", Counts: true},
}

// Summary has the figures that have a limit.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, p := range r {
		s.TakeFigures(Limits, p.Figures)
	}
	return s
}

// Judge says how the attacks ended. An attack that did not run, or was skipped, is an error.
func Judge(attacks []Attack, seen Seen) (points []Point, figures map[string]float64, err error) {
	figures = map[string]float64{"attacks_tried": 0, "attacks_won": 0}
	for name, v := range seen.Figures {
		figures[name] = v
	}
	for _, a := range attacks {
		how := seen.Ended[a.Package+" "+a.reported()]
		if how != "pass" && how != "fail" {
			err = errors.Join(err, fmt.Errorf("%s: %s was not run", a.Package, a.Test))
			continue
		}
		figures["attacks_tried"]++
		if how == "fail" {
			figures["attacks_won"]++
		}
		points = append(points, Point{a.Role, a.Asset, a.Package, a.Test, how == "fail"})
	}
	return points, figures, err
}

// Table prints how many attacks of each role were tried, and which were won.
func Table(w io.Writer, points []Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, role := range Roles {
		tried, won := 0, 0
		for _, p := range points {
			if p.Role != role {
				continue
			}
			if tried++; p.Won {
				won++
				fmt.Fprintf(w, "WON by the %s: %s, in %s of %s\n", role, p.Asset, p.Test, p.Package)
			}
		}
		if tried > 0 {
			fmt.Fprintf(t, "%s\t%d tried\t%d won\n", role, tried, won)
		}
	}
	return t.Flush()
}
