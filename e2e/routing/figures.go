package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// Figures are the paper's figures 9 and 10 with what was measured, by file name, and a file
// with all cases for each round trip.
func (r Results) Figures() map[string][]chart.Panel {
	figures := map[string][]chart.Panel{}
	groups := byCase(r.points())
	if len(groups) == 0 {
		return figures
	}
	for _, g := range groups {
		name := fmt.Sprintf("routing-cdf-%dms.svg", g[0].RTT.Milliseconds())
		figures[name] = append(figures[name], cdf(g))
	}
	figures["routing-fig9.svg"] = corners(groups)
	for _, g := range corner(groups, false, true) {
		for _, p := range g {
			if p.Variant == Default || p.Variant == FaaSt || p.Variant == Ours {
				figures["routing-fig10.svg"] = append(figures["routing-fig10.svg"], density(p))
			}
		}
	}
	return figures
}

// corners are the least and the most users with the shortest and the longest round trip, as
// the paper shows them.
func corners(groups [][]Point) []chart.Panel {
	var panels []chart.Panel
	for _, most := range []bool{false, true} {
		for _, longest := range []bool{false, true} {
			for _, g := range corner(groups, longest, most) {
				panels = append(panels, cdf(g))
			}
		}
	}
	return panels
}

// corner is one of them, if there are others; groups are sorted by round trip and users.
func corner(groups [][]Point, longest, most bool) [][]Point {
	byUsers := func(a, b []Point) int { return a[0].Users - b[0].Users }
	rtt, users := groups[0][0].RTT, slices.MinFunc(groups, byUsers)[0].Users
	last := groups[len(groups)-1][0].RTT
	if longest && last == rtt || most && slices.MaxFunc(groups, byUsers)[0].Users == users {
		return nil
	}
	if longest {
		rtt = last
	}
	if most {
		users = slices.MaxFunc(groups, byUsers)[0].Users
	}
	i := slices.IndexFunc(groups, func(g []Point) bool { return g[0].RTT == rtt && g[0].Users == users })
	if i < 0 {
		return nil
	}
	return groups[i : i+1]
}

func cdf(points []Point) chart.Panel {
	l := chart.Lines{Title: points[0].Case.String(), XLabel: "response time, ms", YLabel: "CDF", LogX: true, Dense: true}
	for _, p := range points {
		s := chart.Series{Name: p.Variant, Dashed: p.Variant == Oracle}
		for i, x := range p.CDF {
			if x > 0 {
				s.X, s.Y = append(s.X, x), append(s.Y, float64(i)/CDFSteps)
			}
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// densityUpTo is where the paper's figure ends, and a bit more.
const densityUpTo = 200 * time.Millisecond

// density tells for each tier how many of its answers took how long.
func density(p Point) chart.Panel {
	l := chart.Lines{Title: p.Variant + ", " + p.Case.String(), XLabel: "response time, ms", YLabel: "% of requests per " + Bin.String(), Dense: true}
	tiers := map[string][]int{}
	for node, counts := range p.Served {
		tier, _, _ := strings.Cut(node, "-")
		if tiers[tier] == nil {
			tiers[tier] = make([]int, len(counts))
		}
		for i, n := range counts {
			tiers[tier][i] += n
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		s := chart.Series{Name: "served by " + tier}
		for i, n := range tiers[tier][:min(int(densityUpTo/Bin), len(tiers[tier]))] {
			s.X = append(s.X, float64((time.Duration(i)*Bin+Bin/2).Microseconds())/1000)
			s.Y = append(s.Y, 100*float64(n)/float64(max(p.Sent, 1)))
		}
		l.Series = append(l.Series, s)
	}
	return l
}
