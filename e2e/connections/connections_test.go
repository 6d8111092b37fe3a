package connections_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/result"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 3, 1, 2}, 0.5, 2}, {[]float64{7}, 0.99, 7}, {[]float64{7}, 0, 7},
		{[]float64{2, 1}, 1, 2}, {[]float64{2, 1}, 0, 1},
	} {
		if got := connections.Quantile(c.values, c.q); got != c.want {
			t.Errorf("%v of %v is %v, not %v", c.q, c.values, got, c.want)
		}
	}
	all := connections.Percentiles([]float64{2, 1})
	if len(all) != 101 || all[0] != 1 || all[50] != 1 || all[51] != 2 || !slices.IsSorted(all) {
		t.Errorf("percentiles %v", all)
	}
}

func point(name string, values ...cache.Value) connections.Point {
	return connections.Point{Point: cache.Point{Case: name, Values: values}}
}

func TestFiguresAreDrawn(t *testing.T) {
	drawn := point("tcp, lan, descriptor")
	drawn.Connecting, drawn.Lifetime = connections.Percentiles([]float64{1, 2, 3}),
		connections.Percentiles([]float64{300, 310})
	results := connections.Results{
		connections.TCP: {Points: []connections.Point{drawn, point("tcp, 50ms, direct")}},
		connections.Postgres: {Points: []connections.Point{
			point("postgres, 10ms, socket"),
			point("postgres once, 10ms, direct", cache.Value{Name: connections.Life, Value: 400})}},
	}
	figures := results.Figures()
	for file, words := range map[string][]string{"connections-tcp.svg": {"descriptor", "Life of a container"},
		"connections-lifetime.svg": {"10ms direct"}} {
		var b strings.Builder
		if err := chart.Write(&b, figures[file]...); err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(b.String(), word) {
				t.Errorf("%s does not say %q", file, word)
			}
		}
		if strings.Contains(b.String(), "socket") || strings.Contains(b.String(), "50ms") {
			t.Errorf("%s has more than it is to draw", file)
		}
	}
	if len(connections.Results{}.Figures()) > 0 {
		t.Error("nothing is drawn")
	}
}

func TestTheSummaryHasAllFiguresWithALimit(t *testing.T) {
	figures := map[string]float64{"round_trips_psql_socket": 1}
	for _, l := range connections.Limits {
		figures[l.Name] = l.Limit
	}
	s := connections.Results{connections.TCP: {Figures: figures}}.Summary()
	if len(s) != len(connections.Limits) {
		t.Errorf("the summary is %v", s)
	}
	for _, c := range result.Checks(connections.Limits, s) {
		if !c.Holds {
			t.Errorf("%+v", c)
		}
	}
}

func TestTheTableIsOfValues(t *testing.T) {
	var b strings.Builder
	points := []connections.Point{point("near", cache.Value{Name: "usable ms", Value: 1.5})}
	if err := connections.Table(&b, points); err != nil {
		t.Fatal(err)
	}
	if want := "        usable ms\n  near        1.5\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
