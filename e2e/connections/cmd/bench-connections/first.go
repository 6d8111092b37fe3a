package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// headline is how many times the repetitions of others the paper's own comparison has.
	headline = 10
	// drawn is how many columns that comparison has.
	drawn = 3
	// tail is the share of the paper's other figure.
	tail = 0.95
)

// tcp compares how long programs take to have a connection, and how long their containers live, as the paper does.
func (b *bench) tcp(ctx context.Context, part *connections.Part) error {
	once := func(kind, way string, d testbed.Distance) *column { return onceOnly(b.column(kind, way, d, "")) }
	dialled, asked, inherits := once("tcp", direct, lan), once("tcp", fetch, lan), once("tcp", descriptor, lan)
	if err := b.rounds(ctx, "a connection over 0.7 ms", headline*b.Repetitions, dialled, asked, inherits); err != nil {
		return err
	}
	part.Figures[connections.InheritedP50] = inherits.median(usable) / dialled.median(usable)
	part.Figures[connections.InheritedP95] = inherits.q(usable, tail) / dialled.q(usable, tail)
	part.Figures["first_answer_p50_ratio"] = inherits.median(first) / dialled.median(first)
	part.Figures["first_answer_p95_ratio"] = inherits.q(first, tail) / dialled.q(first, tail)
	part.Figures[connections.InheritedVsFetch] = inherits.median(usable) / asked.median(usable)

	more := []*column{once("tcp", socket, lan), once("tls", direct, lan), once("tls", descriptor, lan)}
	by := map[string]*column{}
	for _, d := range []testbed.Distance{loopback, near, far} {
		for _, way := range []string{direct, fetch, descriptor} {
			c := once("tcp", way, d)
			by[way+d.Name] = c
			more = append(more, c)
		}
	}
	if err := b.rounds(ctx, "connections over other distances", b.Repetitions, more...); err != nil {
		return err
	}
	part.Figures[connections.InheritedFar] =
		by[descriptor+far.Name].median(usable) / by[descriptor+loopback.Name].median(usable)
	theirs := map[string]*column{}
	for i, c := range append([]*column{dialled, asked, inherits}, more...) {
		what, _, _ := strings.Cut(c.name, "-")
		if c.way == direct {
			theirs[what+c.Distance.Name] = c
		}
		p := c.point(what, i < drawn)
		of := theirs[what+c.Distance.Name].median(first)
		p.Values = append(p.Values, cache.Value{Name: "first answer over direct", Value: c.median(first) / of})
		part.Points = append(part.Points, p)
	}
	return nil
}

// postgres compares first queries, and lifetimes.
func (b *bench) postgres(ctx context.Context, part *connections.Part) error {
	by, lives := map[string]*column{}, map[string]*column{}
	var all []*column
	for _, d := range []testbed.Distance{loopback, lan, near, far} {
		for _, way := range []string{direct, socket, descriptor, connect, pgBouncer} {
			c := b.column("postgres", way, d, "")
			by[way+d.Name] = c
			all = append(all, c)
		}
		for _, way := range []string{direct, socket} {
			c := onceOnly(b.column("postgres", way, d, ""))
			lives[way+d.Name] = c
			all = append(all, c)
		}
	}
	if err := b.rounds(ctx, "first queries", b.Repetitions, all...); err != nil {
		return err
	}
	at10, at50 := by[socket+near.Name], by[socket+far.Name]
	part.Figures[connections.FirstQuery10] = at10.median(first) / at10.median(again)
	part.Figures[connections.FirstQuery50] = at50.median(first) / at50.median(again)
	part.Figures[connections.FirstQueryVsDirect] = at10.median(first) / by[direct+near.Name].median(first)
	part.Figures[connections.FirstQueryVsPgBouncer] = at10.median(first) / by[pgBouncer+near.Name].median(first)
	for name, d := range map[string]testbed.Distance{connections.Lifetime10: near, connections.Lifetime50: far,
		connections.LifetimeLoopback: loopback} {
		ours, theirs := lives[socket+d.Name], lives[direct+d.Name]
		part.Figures[name] = ours.median(lifetime) / theirs.median(lifetime)
		part.Figures["p99_"+name] = ours.q(lifetime, 0.99) / theirs.q(lifetime, 0.99)
	}
	for _, c := range all {
		what := "postgres"
		if c.once {
			what += " once"
		}
		part.Points = append(part.Points, c.point(what, false))
	}
	part.Notes = append(part.Notes,
		"PgBouncer's programs are run by containerd alone: no pod of one machine can mount its socket")
	return nil
}

// redis compares first commands.
func (b *bench) redis(ctx context.Context, part *connections.Part) error {
	var all []*column
	for _, d := range []testbed.Distance{loopback, near, far} {
		for _, way := range []string{direct, socket, descriptor, connect} {
			all = append(all, b.column("redis", way, d, ""))
		}
	}
	if err := b.rounds(ctx, "first commands", b.Repetitions, all...); err != nil {
		return err
	}
	for _, c := range all {
		if c.way == socket && c.Distance == near {
			part.Figures[connections.FirstCommand] = c.median(first) / c.median(again)
		}
		part.Points = append(part.Points, c.point("redis", false))
	}
	return nil
}

// connect measures connects that the shim answers, and those that it only looks at.
func (b *bench) connect(ctx context.Context, part *connections.Part) error {
	answered, dialled := b.column("tcp", connect, far, ""), b.column("tcp", direct, loopback, "")
	target := fmt.Sprintf("%s:%d", b.at(loopback).Address, testbed.EchoTLSPort) // which is nobody's destination here
	filtered := &column{way: connect, Distance: loopback, program: program{name: others + "-connect", image: image,
		destination: "tcp-" + loopback.Name, by: connect, args: []string{others, "dial", target, othersTimes}}}
	plain := &column{way: direct, Distance: loopback, program: program{name: others + "-direct", image: image,
		args: []string{others, "dial", target, othersTimes}}}
	if err := b.rounds(ctx, "connects", b.Repetitions, answered, dialled, filtered, plain); err != nil {
		return err
	}
	part.Figures[connections.ConnectVsLoopback] = answered.median(usable) / dialled.median(usable)
	part.Figures[connections.NonmatchingAdded] = microsecondsInOne * (filtered.median(again) - plain.median(again))
	part.Points = append(part.Points, answered.point("tcp", false), dialled.point("tcp", false),
		filtered.point(others, false), plain.point(others, false))
	return nil
}

const (
	// others is the client's kind that connects to nobody's destination.
	others = "others"
	// othersTimes is how many connects a program makes to nobody's destination.
	othersTimes       = "201"
	microsecondsInOne = 1000 // ms
)
