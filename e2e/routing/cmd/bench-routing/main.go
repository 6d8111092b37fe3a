// Command bench-routing measures what routing by round trips and queues is worth, with the
// test bed of FaaSt's evaluation: an edge node and two cloud nodes in network namespaces,
// emulated links between them, Envoys as gateways, users on both sides. It writes
// routing.json, into which parts that are measured one by one are merged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

const (
	// repetitions of each point, among which its requests are divided: what else the machine
	// does hits all variants alike.
	repetitions = 2
	// requests of each point, as many as the bounds ask for.
	requests = 20_000
	seed     = 20250401
)

type options struct {
	result.Options
	users, rtts, variants string
	requests              int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := options{Options: result.Options{Repetitions: repetitions, Seed: seed}}
	benchmark.Flags(flag.CommandLine, &o.Options)
	flag.StringVar(&o.users, "users", "", "comma-separated numbers of users on each side instead of the paper's, to try something out")
	flag.StringVar(&o.rtts, "rtts", "", "comma-separated round trips in ms, of the paper's; empty: all")
	flag.StringVar(&o.variants, "variants", "", "comma-separated variants: "+strings.Join(variantNames(), ",")+"; empty: all")
	flag.IntVar(&o.requests, "requests", requests, "of each point, over all repetitions")
	flag.Parse()
	if _, err := benchmark.Run(ctx, os.Stdout, o.Options, o.open); err != nil {
		fmt.Fprintln(os.Stderr, "bench-routing:", err)
		os.Exit(1)
	}
}

var progress = result.Progress

// benchmark has the parts in their order.
var benchmark = result.Bench[*bench, routing.Point, routing.Results]{
	Name: "routing",
	Parts: []result.Step[*bench, routing.Point]{
		{Name: "cases", Run: (*bench).cases},
		{Name: "drain", Run: (*bench).drain},
		{Name: "steady", Run: (*bench).steady},
		{Name: "filter", Run: (*bench).filter},
		{Name: "simulation", Run: (*bench).simulation},
		{Name: "coordinates", Run: (*bench).coordinates},
		{Name: "xds", Run: (*bench).xds},
	},
	Limits: routing.Limits,
	Table:  routing.Table,
}

// variants are all that are compared.
func variants() []gateways.Variant {
	return []gateways.Variant{gateways.RoundRobin(), gateways.LeastRequest(), gateways.LocalityFailover(), gateways.FaaSt(),
		gateways.Headstart()}
}

func variantNames() []string {
	var names []string
	for _, v := range variants() {
		names = append(names, v.Name())
	}
	return names
}

// open reads what is to be compared. Each part has a bed of its own.
func (o options) open(common result.Options) (b *bench, end func() error, err error) {
	o.Options = common
	b = &bench{options: o}
	if b.compared, err = o.chosenVariants(); err != nil {
		return nil, nil, err
	}
	if b.users, err = o.chosenUsers(); err != nil {
		return nil, nil, err
	}
	if b.paths, err = o.chosenPaths(); err != nil {
		return nil, nil, err
	}
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("network namespaces need root")
	}
	return b, func() error { return nil }, nil
}
