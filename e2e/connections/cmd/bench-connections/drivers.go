package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/functions/asking"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// driversShare of the repetitions are measured of drivers: their containers take a second each.
const driversShare = 5

// drivers counts the round trips of unmodified drivers until they have their first answer: what they take longer with a
// server at 50 ms than with one at hand, of such round trips.
func (b *bench) drivers(ctx context.Context, part *connections.Part) error {
	archive, err := asking.Image(b.Bin, b.farm.Authority.PEM)
	if err == nil {
		err = b.farm.Import(ctx, archive)
	}
	if err != nil {
		return err
	}
	names := []string{"psql", "psycopg", "node-pg", "redis-py"}
	by := map[string]*column{}
	var all []*column
	for _, name := range names {
		for _, way := range []string{direct, socket} {
			for _, d := range []testbed.Distance{loopback, far} {
				c := b.driver(name, way, d)
				by[name+way+d.Name] = c
				all = append(all, c)
			}
		}
	}
	if err := b.rounds(ctx, "drivers", max(1, b.Repetitions/driversShare), all...); err != nil {
		return err
	}
	for _, name := range names {
		p := connections.Point{Point: cache.Point{Case: name}}
		for _, way := range []string{direct, socket} {
			here, there := by[name+way+loopback.Name], by[name+way+far.Name]
			trips := (there.median(first) - here.median(first)) / milliseconds(far.RTT)
			part.Figures["round_trips_"+strings.ReplaceAll(name, "-", "_")+"_"+way] = trips
			p.Values = append(p.Values, cache.Value{Name: "round trips, " + way, Value: trips})
		}
		part.Points = append(part.Points, p)
	}
	return nil
}

// driver returns a program with a driver.
func (b *bench) driver(name, way string, d testbed.Distance) *column {
	s := b.at(d)
	c := &column{way: way, Distance: d, program: program{
		name: fmt.Sprintf("%s-%s-%s", name, way, d.Name), image: asking.Ref,
		destination: "postgres-" + d.Name}}
	if name == "redis-py" {
		c.destination = "redis-" + d.Name
	}
	dir := "/headstart/socket/" + c.destination
	host, port, password, dsn, url := dir, testbed.PostgresPort, "", "", "unix://"+dir+"/redis.sock"
	if way == direct {
		host, password, c.destination = s.Address.String(), b.farm.Password, ""
		dsn = fmt.Sprintf(" password=%s sslmode=verify-full sslrootcert=%s", password, asking.Roots)
		url = fmt.Sprintf("redis://%s:%s@%s:%d", testbed.FarmUser, password, s.Address, testbed.FarmRedisPort)
	}
	dsn = fmt.Sprintf("host=%s port=%d user=%s dbname=%s%s", host, port, testbed.FarmUser, testbed.FarmDatabase, dsn)
	switch name {
	case "psql":
		c.args = []string{asking.Psql, "-X", "-A", "-t", dsn, "-c", "select 1"}
	case "psycopg":
		c.args = append(slices.Clone(asking.Python), name, dsn)
	case "redis-py":
		c.args = append(slices.Clone(asking.Python), name, url)
	case "node-pg":
		c.args = append(slices.Clone(asking.Node), host, strconv.Itoa(port), testbed.FarmUser, testbed.FarmDatabase)
		if way == direct {
			c.args = append(c.args, password)
		}
	}
	c.args = append([]string{"exec"}, c.args...)
	return c
}
