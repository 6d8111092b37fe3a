// Command bench-connections measures what connections are worth that are there before the function starts. It writes
// connections.json, into which parts that are measured one by one are merged.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/result"
)

const (
	// repetitions of each point that is measured.
	repetitions = 100
	seed        = 20261127
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := result.Options{Repetitions: repetitions, Seed: seed}
	benchmark.Flags(flag.CommandLine, &o)
	flag.Parse()
	open := func(o result.Options) (*bench, func() error, error) { return open(ctx, o) }
	if _, err := benchmark.Run(ctx, os.Stdout, o, open); err != nil {
		fmt.Fprintln(os.Stderr, "bench-connections:", err)
		os.Exit(1)
	}
}

// benchmark has the parts in their order.
var benchmark = result.Bench[*bench, connections.Point, connections.Results]{
	Name: "connections",
	Parts: []result.Step[*bench, connections.Point]{
		{Name: connections.TCP, Run: (*bench).tcp},
		{Name: connections.Postgres, Run: (*bench).postgres},
		{Name: connections.Redis, Run: (*bench).redis},
		{Name: connections.Sandbox, Run: (*bench).sandbox},
		{Name: connections.Connect, Run: (*bench).connect},
		{Name: connections.Hot, Run: (*bench).hot},
		{Name: connections.Memory, Run: (*bench).memory},
		{Name: connections.Drivers, Run: (*bench).drivers},
		{Name: connections.Tenants, Run: (*bench).tenants},
	},
	Limits: connections.Limits,
	Table:  connections.Table,
}
