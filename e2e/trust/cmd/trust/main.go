// Command trust runs the tests that play an attacker, and says in out/trust.json what they got.
//
//	trust [-out out/trust.json]
//	trust [-out out/trust.json] -part NAME test -tags cluster ./PACKAGE...
//
// The second runs `go` with these arguments, prints what it says, and counts the attacks that are in
// these packages for the tests on a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/trust"
)

func main() {
	out := flag.String("out", "out/trust.json", "file of the results; those of other parts stay in it")
	part := flag.String("part", "local", "name of this part of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *out, *part, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "trust:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, path, name string, args []string) error {
	parts, err := result.Load[trust.Point](path)
	if err != nil {
		return fmt.Errorf("the results so far: %w", err)
	}
	part := result.Begin[trust.Point](0, 1)
	onCluster := len(args) > 0
	attacks := slices.DeleteFunc(slices.Clone(trust.Attacks), func(a trust.Attack) bool {
		return (a.Tag == trust.Cluster) != onCluster
	})
	if !onCluster {
		args = trust.Args(attacks)
	}
	seen, failed := trust.Run(ctx, args, onCluster, w)
	if onCluster { // whose tests are run package by package
		attacks = slices.DeleteFunc(attacks, func(a trust.Attack) bool { return !seen.Packages[a.Package] })
	}
	if !onCluster {
		measured, err := trust.Run(ctx, trust.Measurements, false, w)
		failed = errors.Join(failed, err)
		maps.Copy(seen.Figures, measured.Figures)
	}
	points, figures, err := trust.Judge(attacks, seen)
	part.Points, part.Figures = points, figures
	if !onCluster {
		targets, err := fuzzTargets(ctx)
		if err != nil {
			return err
		}
		part.Figures["fuzz_targets"] = float64(targets)
	}
	part.End()
	parts[name] = part
	summary := trust.Results(parts).Summary()
	checks := result.Checks(trust.Limits, summary)
	err = errors.Join(failed, err, result.Write(path, summary, parts),
		result.Show(w, map[string]trust.Part{name: part}, trust.Table, checks))
	for i, c := range checks {
		few := onCluster && trust.Limits[i].AtLeast // those without a cluster may not have run here
		timed := !trust.Limits[i].Counts            // says MISSED: a busy machine is no defect
		if c.Measured != "" && !c.Holds && !few && !timed {
			err = errors.Join(err, fmt.Errorf("%s is %s, and must be %s", c.Figure, c.Measured, c.Bound))
		}
	}
	return err
}

// fuzzTargets counts as `make fuzz` does.
func fuzzTargets(ctx context.Context) (int, error) {
	files, err := exec.CommandContext(ctx, "git", "grep", "-hE", "^func Fuzz[A-Za-z]*\\(", "--", "*_test.go").Output()
	return len(regexp.MustCompile(`(?m)^func Fuzz`).FindAll(files, -1)), err
}
