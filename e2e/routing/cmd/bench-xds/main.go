// bench-xds measures how soon the control plane reaches a thousand nodes, by both streams that
// a daemon has, and what each costs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/routing/xdsscale"
)

// gcPercent is the control plane's own.
const gcPercent = 50

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-xds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := xdsscale.Options{}
	clients := flag.Bool("clients-only", false, "be the clients of another process, on standard input and output")
	profile := flag.String("cpuprofile", "", "file for a profile of the control plane")
	flag.IntVar(&o.Clients, "clients", 1000, "nodes")
	flag.IntVar(&o.Functions, "functions", 100, "functions")
	flag.IntVar(&o.Endpoints, "endpoints", 100, "endpoints of each function")
	flag.IntVar(&o.Changes, "changes", 200, "changes of each kind")
	flag.Uint64Var(&o.Seed, "seed", 20240915, "seed of the weights and changes")
	flag.Parse()
	if *clients {
		return xdsscale.Clients(ctx, os.Stdin, os.Stdout)
	}
	debug.SetGCPercent(gcPercent)
	own, err := os.Executable()
	if err != nil {
		return err
	}
	o.Command = []string{own, "-clients-only"}
	if o.Dir, err = os.MkdirTemp("", "bench-xds-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.Dir)
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	figures, err := xdsscale.Measure(ctx, o)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(figures)
}
