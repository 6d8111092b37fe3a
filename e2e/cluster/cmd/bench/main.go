// Command bench measures Headstart on the test cluster: the main job off and on, how fast
// readiness and annotations take effect, also beside a namespace with thousands of Services, what an installation
// costs, and what is lost when parts fail. It writes out/bench/cluster.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/result"
)

// limits are those of the issue that this benchmark answers; a figure beyond its limit is said
// plainly.
var limits = []result.Limit{
	{Name: "total_to_bound_max", Limit: 1.15}, {Name: "ready_to_envoy_p99_ms", Limit: 50}, {Name: "annotation_to_effect_p99_ms", Limit: 1000},
	{Name: "install_s", Limit: 60}, {Name: "uninstall_s", Limit: 30}, {Name: "uninstall_residue"}, {Name: "daemon_rss_mib", Limit: 40}, {Name: "daemon_cpu_percent", Limit: 0.5},
	{Name: "controlplane_rss_mib", Limit: 64}, {Name: "others_annotation_to_effect_p99_ms", Limit: 1000}, {Name: "others_cold_failed"}, {Name: "requests_lost"}, {Name: "promises_broken"}, {Name: "answers_wrong"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.source, "source", ".", "the repository's root")
	flag.StringVar(&o.out, "out", "out/bench", "directory for cluster.json and the SVG")
	flag.BoolVar(&o.reuse, "reuse", false, "take a cluster that runs already, and leave it running")
	flag.StringVar(&o.only, "only", "", "comma-separated parts: "+strings.Join(partNames(), ",")+"; empty: all")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	source, out, only string
	reuse             bool
}

var progress = result.Progress

// bench is what the parts share.
type bench struct {
	*world.World
	options
	summary result.Summary
	rows    []coldrun.Row
	notes   []string
}

// parts in their order: what leaves the cluster as it was comes first.
var parts = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"idle", (*bench).idle},
	{"cold", (*bench).cold},
	{"knative", (*bench).knative},
	{"readiness", (*bench).readiness},
	{"annotation", (*bench).annotation},
	{"crowd", (*bench).crowd},
	{"faults", (*bench).faults},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, o options) (err error) {
	names, err := result.Choose(partNames(), o.only)
	if err != nil {
		return err
	}
	if o.source, err = filepath.Abs(o.source); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	w, err := world.Open(ctx, world.Config{Source: o.source, WorkDir: filepath.Join(o.source, "out/cluster"), Reuse: o.reuse, Progress: progress})
	if err != nil {
		return err
	}
	b := &bench{World: w, options: o, summary: result.Summary{"seed": coldrun.Seed, "link_delay_ms": float64(world.LinkDelay.Milliseconds()), "link_rate_mbit_s": world.LinkRate / 1e6}}
	defer func() {
		progress("removing everything")
		if closed := w.Close(); err == nil {
			err = closed
		}
	}()
	before, err := w.TakeSnapshot(ctx)
	if err != nil {
		return err
	}
	if err := b.install(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if !slices.Contains(names, p.name) {
			continue
		}
		if err := p.run(b, ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), b.write()) // what was measured is not lost
		}
	}
	// First without what the end adds: what was measured is not lost by what fails then.
	if err := b.write(); err != nil {
		return err
	}
	if err := b.uninstall(ctx, before); err != nil {
		return errors.Join(err, b.show())
	}
	if err := errors.Join(b.write(), b.show()); err != nil {
		return err
	}
	if wrong := b.summary["answers_wrong"]; wrong > 0 {
		return fmt.Errorf("%.0f answers were wrong", wrong) // figures of which are worth nothing
	}
	return nil
}

// install measures the chart's way from nothing to ready, with the images in the
// cluster's registry.
func (b *bench) install(ctx context.Context) error {
	progress("images of Headstart")
	values, err := b.BuildImages(ctx, "bench")
	if err != nil {
		return err
	}
	progress("helm install")
	took, err := b.Install(ctx, values)
	b.summary["install_s"] = took.Seconds()
	return err
}

func (b *bench) uninstall(ctx context.Context, before world.Snapshot) error {
	progress("helm uninstall")
	// Pods of the runtime class go first: without the shim nobody could end them.
	if err := b.UndeployAll(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := b.Uninstall(ctx); err != nil {
		return err
	}
	b.summary["uninstall_s"] = time.Since(began).Seconds()
	residue, err := b.Residue(ctx, before)
	if err != nil {
		return err
	}
	b.summary["uninstall_residue"] = float64(len(residue))
	b.notes = append(b.notes, residue...)
	return nil
}

func (b *bench) report() coldrun.Report {
	title := fmt.Sprintf("Cold requests through Istio's gateway, input across a link of %d ms and %d Mbit/s, medians of %d, in ms",
		2*world.LinkDelay.Milliseconds(), int64(world.LinkRate)/1_000_000, repetitions)
	return coldrun.NewReport(title, b.summary, b.rows, result.Checks(limits, b.summary), b.notes...)
}

func (b *bench) write() error {
	if len(b.rows) > 0 {
		if err := coldrun.DrawTimelines(filepath.Join(b.out, "cluster.svg"), b.rows); err != nil {
			return err
		}
	}
	return b.report().Write(filepath.Join(b.out, "cluster.json"))
}

func (b *bench) show() error {
	r := b.report()
	fmt.Printf("\n%s\n\n", r.Title)
	if err := coldrun.Table(os.Stdout, r.Lines); err != nil {
		return err
	}
	fmt.Println()
	if err := result.Verdicts(os.Stdout, r.Checks); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Println("  ", n)
	}
	return nil
}
