package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// warmUps are the rounds before those that count: nodes learn what drivers ask for, and that they ask at all.
const warmUps = 4

// column is a program that is run in each round.
type column struct {
	way string
	testbed.Distance
	program
	// once: it asks once, and then ends as a function does. Only of such the life is told.
	once bool

	runs    []ran
	unready int // of them, those that have found no connection ready
}

// column returns the client of a kind that is connected in a way. suffix tells one destination from another.
func (b *bench) column(kind, way string, d testbed.Distance, suffix string, more ...string) *column {
	s := b.at(d)
	c := &column{way: way, Distance: d, program: program{
		name: fmt.Sprintf("%s-%s-%s%s", kind, way, d.Name, suffix), image: image,
		env: map[string]string{"CLIENT_USER": testbed.FarmUser, "CLIENT_DATABASE": testbed.FarmDatabase}}}
	protocol := kind
	if kind == connections.Hot || kind == hold {
		protocol = "postgres"
	}
	c.destination = fmt.Sprintf("%s-%s%s", protocol, d.Name, suffix)
	target, by := c.destination, way
	switch way {
	case direct:
		c.destination, target, by = "", b.address(protocol, s), "dial"
		c.env["CLIENT_PASSWORD"] = b.farm.Password
	case connect:
		c.by, target, by = connect, b.address(protocol, s), "dial"
		if protocol == "postgres" {
			// The daemon speaks TLS with the server. A program that insists on it would have to by itself.
			target = fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", s.Address, testbed.PostgresPort,
				testbed.FarmUser, testbed.FarmDatabase)
		}
		c.env["CLIENT_PASSWORD"] = "not-the-server-s"
	case descriptor:
		c.by = descriptor
	case pgBouncer:
		c.destination, by, c.pgBouncer = "", "dial", s.PgBouncer
		target = fmt.Sprintf("host=/pgbouncer port=6432 user=%s dbname=%s", testbed.FarmUser, testbed.FarmDatabase)
	}
	c.args = append([]string{kind, by, target}, more...)
	return c
}

// onceOnly returns the column with a program that asks once.
func onceOnly(c *column) *column {
	c.once, c.name, c.args = true, c.name+"-once", append(c.args, "0")
	return c
}

// address is what a program without Headstart is told of a server.
func (b *bench) address(kind string, s *testbed.Servers) string {
	switch kind {
	case "postgres":
		return fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=verify-full sslrootcert=/roots.pem",
			s.Address, testbed.PostgresPort,
			testbed.FarmUser, b.farm.Password, testbed.FarmDatabase)
	case "redis":
		return fmt.Sprintf("%s:%d", s.Address, testbed.FarmRedisPort)
	case "tls":
		return fmt.Sprintf("%s:%d", s.Address, testbed.EchoTLSPort)
	}
	return fmt.Sprintf("%s:%d", s.Address, testbed.EchoPort)
}

// ready is by what way of the daemon's metrics a program gets a connection that was ready for it; empty: it is to have
// none.
func (c *column) ready() string {
	switch {
	case c.destination == "" || c.args[0] == others:
		return ""
	case strings.HasSuffix(c.destination, ofSandbox):
		return "ahead"
	}
	return "pool"
}

// handed is how many programs have got a connection that was ready for them, of the column's destination.
func (b *bench) handed(ctx context.Context, c *column) float64 {
	n, _ := b.farm.Metric(ctx, testbed.Edge, fmt.Sprintf( // it is not there before the first
		"headstart_connection_handover_duration_seconds_count{destination=%q,way=%q}", c.destination, c.ready()))
	return n
}

// unreadyMost is the share of a column's runs that may find no connection ready. What is measured beyond that is
// something else than it is called.
const unreadyMost = 0.02

// rounds runs all columns in each round, another one first each time.
func (b *bench) rounds(ctx context.Context, what string, n int, columns ...*column) error {
	began := time.Now()
	handed := map[string]float64{} // by destination
	for round := range warmUps + n {
		if round == warmUps {
			if err := b.await(ctx, columns); err != nil {
				return err
			}
			for _, c := range columns {
				handed[c.destination] = b.handed(ctx, c)
			}
		}
		if round%progressEvery == 0 {
			result.Progress(fmt.Sprintf("%s, round %d of %d, %s", what, round+1, warmUps+n,
				time.Since(began).Round(time.Second)))
		}
		first := round % len(columns)
		for _, c := range slices.Concat(columns[first:], columns[:first]) {
			r, err := b.run(ctx, c.program)
			if err != nil {
				return err
			}
			if round < warmUps {
				continue
			}
			c.runs = append(c.runs, r)
			if c.ready() == "" {
				continue
			}
			now := b.handed(ctx, c)
			if now != handed[c.destination]+1 {
				c.unready++
			}
			if handed[c.destination] = now; float64(c.unready) > unreadyMost*float64(n) {
				return fmt.Errorf("%s: in %d of %d rounds the program has found no connection that was ready (%s)",
					c.name, c.unready, round-warmUps+1, c.ready())
			}
		}
	}
	return nil
}

// awaitTimeout is longer than a control plane that has just begun waits before it lets nodes hold connections, which
// others may hold still.
const awaitTimeout = time.Minute

// await waits until connections wait for all programs that want such, one for each.
func (b *bench) await(ctx context.Context, columns []*column) error {
	want := map[string]float64{}
	for _, c := range columns {
		if c.ready() == "pool" {
			want[c.destination]++
		}
	}
	for destination, programs := range want {
		metric := fmt.Sprintf("headstart_connections_unused{destination=%q}", destination)
		err := testbed.Poll(ctx, awaitTimeout, func(ctx context.Context) error {
			n, err := b.farm.Metric(ctx, testbed.Edge, metric)
			if err == nil && n < programs {
				err = fmt.Errorf("the node holds %g unused connections to %s for %g programs", n, destination, programs)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ofSandbox ends the names of destinations whose connections are made in sandboxes.
const ofSandbox = "-sandbox"

// progressEvery many rounds somebody who waits sees how far the benchmark is.
const progressEvery = 50

// of returns one figure of all runs, in ms.
func (c *column) of(figure func(ran) time.Duration) []float64 {
	all := make([]float64, len(c.runs))
	for i, r := range c.runs {
		all[i] = milliseconds(figure(r))
	}
	return all
}

// The figures of a run.
func usable(r ran) time.Duration   { return r.report.Usable }
func first(r ran) time.Duration    { return r.report.First }
func again(r ran) time.Duration    { return r.report.Again }
func lifetime(r ran) time.Duration { return r.lifetime }

const percent = 100

// median is that of a figure, q another quantile.
func (c *column) median(figure func(ran) time.Duration) float64 { return c.q(figure, 0.5) }

func (c *column) q(figure func(ran) time.Duration, q float64) float64 {
	return connections.Quantile(c.of(figure), q)
}

// point is what a column has measured. Those that a figure draws have their percentiles.
func (c *column) point(what string, drawn bool) connections.Point {
	value := func(name string, v float64) cache.Value { return cache.Value{Name: name, Value: v} }
	p := connections.Point{Point: cache.Point{Case: fmt.Sprintf("%s, %s, %s", what, c.Distance.Name, c.way)}}
	if c.runs[0].report.Usable > 0 {
		p.Values = append(p.Values, value(connections.Usable, c.median(usable)), value("p95 ms", c.q(usable, 0.95)))
	}
	if c.runs[0].report.First > 0 {
		p.Values = append(p.Values, value(connections.First, c.median(first)), value("its p99 ms", c.q(first, 0.99)))
	}
	if c.runs[0].report.Again > 0 {
		p.Values = append(p.Values, value("again ms", c.median(again)))
	}
	if c.ready() != "" {
		p.Values = append(p.Values, value("ready %", percent*(1-float64(c.unready)/float64(len(c.runs)))))
	}
	if c.once {
		p.Values = append(p.Values, value(connections.Life, c.median(lifetime)), value("mean ms", mean(c.of(lifetime))),
			value("life's p99 ms", c.q(lifetime, 0.99)))
	}
	if drawn {
		p.Connecting, p.Lifetime = connections.Percentiles(c.of(usable)), connections.Percentiles(c.of(lifetime))
	}
	return p
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
