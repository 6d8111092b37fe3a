//go:build integration

package history_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/control-plane/history/historytest"
)

// minutes are of which the server has something.
const minutes = 60

// kept writes what a server has kept: a value for each minute, NaN for none.
type kept struct {
	strings.Builder
	now time.Time
}

func (k *kept) series(name, labels string, value func(minute int) float64) {
	if !strings.Contains(k.String(), "# TYPE "+name+" ") {
		fmt.Fprintf(k, "# TYPE %s gauge\n", name)
	}
	for i := range minutes {
		if v := value(i); !math.IsNaN(v) {
			fmt.Fprintf(k, "%s{%s} %v %d\n", name, labels, v, k.now.Add(time.Duration(i-minutes+1)*time.Minute).Unix())
		}
	}
}

func TestGrowth(t *testing.T) {
	k := &kept{now: time.Now().Truncate(time.Second)}
	nan := math.NaN()
	away := func(i int) bool { return i >= 30 && i < 40 } // longer than Prometheus looks back
	target := func(n int) string { return fmt.Sprintf(`job="pods",instance="10.0.0.%d:1"`, n) }
	for n := range 7 {
		k.series("up", target(n), func(i int) float64 {
			if n == 4 && away(i) || n == 5 && i < 30 { // one that does not answer for a while, and one that is new
				return 0
			}
			return 1
		})
	}
	counters := map[string]func(i int) float64{}
	count := func(n int, service string, value func(i int) float64) {
		counters[fmt.Sprintf(`%s,service=%q`, target(n), service)] = value
	}
	count(0, "steady", func(i int) float64 { return 1000 + float64(i/10) })
	count(1, "steady", func(i int) float64 { return 5000 })
	count(2, "comes-up", func(i int) float64 {
		if i < 30 {
			return nan
		}
		return 3 + float64((i-30)/10)
	})
	count(3, "begins-again", func(i int) float64 {
		if i < 30 {
			return 9
		}
		return 2
	})
	count(4, "not-scraped", func(i int) float64 {
		if away(i) {
			return nan
		}
		return 100_000
	})
	count(6, "not-scraped", func(i int) float64 { return 100_000 })
	count(5, "scraped-late", func(i int) float64 {
		if i < 30 {
			return nan
		}
		return 50_000
	})
	for labels, value := range counters {
		k.series("calls", labels, value)
	}
	past, err := history.Open(t.Context(), historytest.Start(t, k.String()), http.DefaultTransport, 7*24*time.Hour, k.now)
	if err != nil {
		t.Fatal(err)
	}
	if d := past.Window.Length(); (d - time.Hour).Abs() > 2*time.Minute {
		t.Errorf("the server knows of an hour, not of %v", d)
	}
	if step := past.Window.Step; step < 50*time.Second || step > time.Minute {
		t.Errorf("it scraped each minute, steps are %v", step)
	}
	all, err := past.Growth(t.Context(), "calls", "service")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, s := range all {
		got[s.Labels["service"]] = history.Sum(s.Values)
	}
	grown, err := past.Grown(t.Context(), "calls", "service")
	if err != nil {
		t.Fatal(err)
	}
	var services []string
	for _, labels := range grown {
		services = append(services, labels["service"])
	}
	slices.Sort(services)
	if want := []string{"begins-again", "comes-up", "scraped-late", "steady"}; !slices.Equal(services, want) { // not-scraped stayed as it was
		t.Errorf("%q have grown, or come up, want %q", services, want)
	}
	for service, want := range map[string]float64{"steady": 5, "comes-up": 5, "begins-again": 2, "not-scraped": 0, "scraped-late": 0} {
		if v, ok := got[service]; !ok || v != want {
			t.Errorf("%s has grown by %v, want %v", service, v, want)
		}
	}
	if _, err := past.Range(t.Context(), "sum by ("); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Error(err)
	}
}

// Prometheus bounds what a query takes; a week of a large mesh is asked for in parts.
func TestWhatIsTooMuchAtOnce(t *testing.T) {
	k := &kept{now: time.Now().Truncate(time.Second)}
	k.series("up", `job="pods",instance="a"`, func(int) float64 { return 1 })
	for n := range 20 {
		k.series("calls", fmt.Sprintf(`job="pods",instance="a",n="%d"`, n), func(i int) float64 { return float64(i) })
	}
	ask := func(most string) ([]history.Series, error) {
		past, err := history.Open(t.Context(), historytest.Start(t, k.String(), "--query.max-samples", most), http.DefaultTransport, time.Hour, k.now)
		if err != nil {
			t.Fatal(err)
		}
		return past.Range(t.Context(), "sum(calls)")
	}
	all, err := ask("500")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for i, v := range all[0].Values {
		if math.IsNaN(v) {
			t.Errorf("point %d of %d is missing", i, len(all[0].Values))
		}
	}
	if _, err := ask("15"); err == nil || !strings.Contains(err.Error(), "shorten --since, or name a namespace by -n") {
		t.Error(err)
	}
}

func TestAServerThatKnowsNothing(t *testing.T) {
	k := &kept{now: time.Now().Truncate(time.Second).Add(-48 * time.Hour)}
	k.series("up", `job="pods"`, func(int) float64 { return 1 })
	_, err := history.Open(t.Context(), historytest.Start(t, k.String()), http.DefaultTransport, time.Hour, time.Now())
	if err == nil || !strings.Contains(err.Error(), "has nothing of the last 1h: is it the one that watches this cluster?") {
		t.Error(err)
	}
}
