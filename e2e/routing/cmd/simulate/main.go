// Command simulate prints how long requests take under one way of routing or another, in
// simulated networks: the tables of docs/results/routing.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headstart-mesh/headstart/e2e/routing/simulator"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// row is a result as JSON has it; latencies are in milliseconds.
type row struct {
	Kind     simulator.Kind `json:"kind"`
	World    string         `json:"world"`
	Policy   string         `json:"policy"`
	Requests int            `json:"requests"`
	Window   float64        `json:"window_s"`
	Failed   int            `json:"failed"`
	Answered int            `json:"answered"`
	Mean     float64        `json:"mean_ms"`
	P50      float64        `json:"p50_ms"`
	P95      float64        `json:"p95_ms"`
	P99      float64        `json:"p99_ms"`
	P999     float64        `json:"p999_ms"`
	Pushes   int            `json:"pushes"`
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	requests := flags.Int("requests", 20_000, "requests per case, about; more where these come in less than the shortest window")
	seed := flags.Uint64("seed", 1, "of all that is random")
	sizes := flags.String("nodes", "3,12", "how many nodes networks have; a thousand take their time")
	cases := flags.String("cases", "", "only those whose kind and name match this regular expression")
	policies := flags.String("policies", "", "only those whose name matches this regular expression")
	asJSON := flags.Bool("json", false, "print a line of JSON for each result, with all figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	which, err := regexp.Compile(*cases)
	if err != nil {
		return fmt.Errorf("-cases: %w", err)
	}
	who, err := regexp.Compile(*policies)
	if err != nil {
		return fmt.Errorf("-policies: %w", err)
	}
	var ps []simulator.Policy
	for _, p := range simulator.Policies() {
		if who.MatchString(p.Name) {
			ps = append(ps, p)
		}
	}
	var nodes []int
	for _, s := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 {
			return fmt.Errorf("-nodes: %q is not a number of nodes", s)
		}
		nodes = append(nodes, n)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	kind := simulator.Kind("")
	for _, c := range simulator.Cases(*requests, nodes, *seed) {
		if !which.MatchString(string(c.Kind) + ": " + c.World.Name) {
			continue
		}
		var rows []row
		for _, p := range ps {
			r := simulator.Run(c.World, p)
			rows = append(rows, row{c.Kind, r.World, r.Policy, r.Requests, r.Window.Seconds(), r.Failed, r.Answered, ms(r.Mean()), ms(r.Quantile(0.5)), ms(r.Quantile(0.95)), ms(r.Quantile(0.99)), ms(r.Quantile(0.999)), r.Pushes})
		}
		if *asJSON {
			for _, r := range rows {
				if err := json.NewEncoder(out).Encode(r); err != nil {
					return err
				}
			}
			continue
		}
		if c.Kind != kind {
			kind = c.Kind
			fmt.Fprintf(t, "%s: p50 / p99 in ms", kind)
			for _, p := range ps {
				fmt.Fprintf(t, "\t%s", strings.ReplaceAll(p.Name, "\t", " "))
			}
			fmt.Fprintln(t, "\t")
		}
		fmt.Fprintf(t, "%s, %v", c.World.Name, (c.World.Length - c.World.Warmup).Round(time.Second))
		for _, r := range rows {
			fmt.Fprintf(t, "\t%.1f / %.1f", r.P50, r.P99)
			if r.Failed > 0 {
				fmt.Fprintf(t, " (%d lost)", r.Failed)
			}
		}
		fmt.Fprintln(t, "\t")
	}
	return t.Flush()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
