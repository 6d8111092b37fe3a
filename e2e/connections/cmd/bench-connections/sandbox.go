package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// sandbox measures connections that are made in the sandbox while the program starts: how much later than it could the
// first answer comes.
func (b *bench) sandbox(ctx context.Context, part *connections.Part) error {
	var all []*column
	for _, d := range []testbed.Distance{loopback, near, far} {
		all = append(all, b.column("postgres", socket, d, ofSandbox))
	}
	if err := b.rounds(ctx, "connections of sandboxes", b.Repetitions, all...); err != nil {
		return err
	}
	for _, c := range all {
		ready, err := authorized(filepath.Join(b.farm.LogDir(), "postgres-"+c.Distance.Name+".log"))
		if err != nil {
			return err
		}
		var excess, earlier []float64
		for _, r := range c.runs {
			at, known := ready[r.report.PID]
			if !known {
				return fmt.Errorf("the server's log has no session %d", r.report.PID)
			}
			at = at.Add(c.RTT / 2) // when the client knows
			from := r.report.Began
			if at.After(from) {
				from = at
			}
			excess = append(excess, milliseconds(r.report.Began.Add(r.report.First).Sub(from)-r.report.Again))
			earlier = append(earlier, milliseconds(r.report.Began.Sub(at)))
		}
		// Where the server is at hand, only a session that nobody has begun for the program is there later than it.
		if early := connections.Quantile(earlier, 0.5); c.Distance == loopback && early <= 0 {
			return fmt.Errorf("%s: sessions are logged in %g ms after main()", c.name, -early)
		}
		p := c.point("origin sandbox", false)
		late := connections.Quantile(excess, 0.5)
		p.Values = append(p.Values,
			cache.Value{Name: "ready before main ms", Value: connections.Quantile(earlier, 0.5)},
			cache.Value{Name: "excess ms", Value: late})
		part.Points = append(part.Points, p)
		part.Figures[connections.AheadExcess] = max(part.Figures[connections.AheadExcess], late)
	}
	return nil
}

// authorization is what PostgreSQL logs of a session that is logged in: a bit before it says so to the client.
var authorization = regexp.MustCompile(`^(\S+ \S+ UTC) \[(\d+)\] LOG:  connection authorized: `)

// authorized reads when sessions were logged in, by their processes.
func authorized(log string) (map[int32]time.Time, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := map[int32]time.Time{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := authorization.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		when, err := time.Parse("2006-01-02 15:04:05.999 MST", m[1])
		if err != nil {
			return nil, err
		}
		pid, err := strconv.ParseInt(m[2], 10, 32)
		if err != nil {
			return nil, err
		}
		at[int32(pid)] = when
	}
	return at, lines.Err()
}
