package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// hotQueries of each size are one program's, and one in hotShare of the repetitions is measured: each is a median
	// of many.
	hotQueries = "501"
	hotShare   = 5
)

// hot compares queries on open sessions.
func (b *bench) hot(ctx context.Context, part *connections.Part) error {
	for _, d := range []testbed.Distance{loopback, lan} {
		by := func(way string) *column { return b.column(connections.Hot, way, d, "", hotQueries) }
		direct, ours, theirs := by(direct), by(socket), by(pgBouncer)
		n := max(1, b.Repetitions/hotShare)
		if err := b.rounds(ctx, "open sessions over "+d.Name, n, direct, ours, theirs); err != nil {
			return err
		}
		for name, size := range map[string]func(ran) time.Duration{
			connections.HotSmall: func(r ran) time.Duration { return r.report.Small },
			connections.HotLarge: func(r ran) time.Duration { return r.report.Large },
		} {
			worse := func(figure string, v float64) {
				if old, is := part.Figures[figure]; !is || v > old {
					part.Figures[figure] = v
				}
			}
			worse(name, microsecondsInOne*(ours.median(size)-direct.median(size)))
			worse(connections.HotVsPgBouncer, ours.median(size)/theirs.median(size))
			for _, c := range []*column{direct, ours, theirs} {
				what := fmt.Sprintf("%s, %s, %s", d.Name, strings.TrimPrefix(name, "hot_added_us_"), c.way)
				part.Points = append(part.Points, connections.Point{Point: cache.Point{Case: what,
					Values: []cache.Value{{Name: "query us", Value: microsecondsInOne * c.median(size)}}}})
			}
		}
	}
	return nil
}

const (
	// hold is the client's kind that keeps sessions.
	hold = "hold"
	// holders are as many sandboxes with heldEach sessions each: a sandbox may have 256.
	holders, heldEach = 5, 100
	// holdTimeout is many times what they take to have them.
	holdTimeout = time.Minute
)

// memory measures what the daemon needs for each connection that passes it.
func (b *bench) memory(ctx context.Context, part *connections.Part) error {
	gate, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(b.farm.ControlPlaneIP().String(), "0"))
	if err != nil {
		return err
	}
	defer gate.Close()
	result.Progress("a daemon that has served")
	for warm := b.column("postgres", socket, loopback, ""); len(warm.runs) < warmUps; {
		r, err := b.run(ctx, warm.program)
		if err != nil {
			return err
		}
		warm.runs = append(warm.runs, r)
	}
	pid := b.farm.PID("headstart-node-" + testbed.Edge)
	before, err := testbed.Memory(pid, "VmRSS")
	if err != nil {
		return err
	}
	var g errgroup.Group
	for i := range holders {
		c := b.column(hold, socket, loopback, "", fmt.Sprint(heldEach))
		c.name, c.env["CLIENT_GATE"] = fmt.Sprintf("%s-%d", c.name, i), gate.Addr().String()
		g.Go(func() error {
			o, err := b.start(ctx, c.program)
			if err != nil {
				return errors.Join(fmt.Errorf("holding sessions: %w: %s", err, o), gate.Close())
			}
			return nil
		})
	}
	held, err := b.held(ctx, gate, pid)
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	each := float64(held.rss-before) / kibibyte / (holders * heldEach)
	part.Figures[connections.DaemonMemory] = each
	const mebibyte = kibibyte * kibibyte
	what := fmt.Sprintf("%d sessions", holders*heldEach)
	part.Points = []connections.Point{{Point: cache.Point{Case: what, Values: []cache.Value{
		{Name: "daemon before MiB", Value: float64(before) / mebibyte},
		{Name: "with them MiB", Value: float64(held.rss) / mebibyte},
		{Name: "of them pass the daemon", Value: held.pumped}, {Name: "KiB each", Value: each}}}}}
	return nil
}

const kibibyte = 1024

type heldSessions struct {
	rss    int64
	pumped float64
}

// held waits until all have their sessions, looks at the daemon, and lets them go.
func (b *bench) held(ctx context.Context, gate net.Listener, pid int) (h heldSessions, err error) {
	for range holders {
		if err := gate.(*net.TCPListener).SetDeadline(time.Now().Add(holdTimeout)); err != nil {
			return h, err
		}
		c, err := gate.Accept()
		if err != nil {
			return h, err
		}
		defer c.Close() // the program goes on
		var said [8]byte
		if _, err := c.Read(said[:]); err != nil {
			return h, err
		}
	}
	if h.rss, err = testbed.Memory(pid, "VmRSS"); err != nil {
		return h, err
	}
	h.pumped, err = b.farm.Metric(ctx, testbed.Edge, "headstart_connections_pumped")
	return h, err
}
