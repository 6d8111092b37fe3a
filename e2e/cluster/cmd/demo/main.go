// Command demo shows the main job on a real cluster, as its users have it: cold requests
// through Istio's gateway, whose input lies across an emulated link, off and on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// megabytes is the video's size.
	megabytes   = 32
	repetitions = 3
	// totalSlack is what a total may exceed its bound by in any case.
	totalSlack = 100 * time.Millisecond
	// idleWindow is short, because the functions have to be cold again.
	idleWindow = "2s"
	width      = 110
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	source := flag.String("source", ".", "the repository's root")
	reuse := flag.Bool("reuse", false, "take a cluster that runs already, and leave it running")
	flag.Parse()
	if err := run(ctx, *source, *reuse); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func progress(step string) { fmt.Fprintln(os.Stderr, "·", step) }

// run is the demo from top to bottom.
func run(ctx context.Context, source string, reuse bool) (err error) {
	if source, err = filepath.Abs(source); err != nil {
		return err
	}
	w, err := world.Open(ctx, world.Config{Source: source, WorkDir: filepath.Join(source, "out/cluster"), Reuse: reuse, Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		progress("removing everything")
		err = errors.Join(err, w.Close())
	}()
	progress("images of Headstart")
	values, err := w.BuildImages(ctx, "demo")
	if err != nil {
		return err
	}
	took, err := w.Install(ctx, values)
	if err != nil {
		return err
	}
	progress(fmt.Sprintf("helm install: ready after %.1f s", took.Seconds()))
	c, err := coldrun.Generated(ctx, w.Cloud.S3, megabytes)
	if err != nil {
		return err
	}
	if err := w.Deploy(ctx, world.Function{Name: c.Off, Annotations: map[string]string{"headstart.dev/scale-to-zero": idleWindow}},
		world.Function{Name: c.On, Annotations: world.WithInput(idleWindow)}); err != nil {
		return err
	}
	client, err := w.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := coldrun.Run{World: client, Repetitions: repetitions, Bucket: testbed.Bucket, Progress: progress}.Measure(ctx, []coldrun.Case{c})
	if err != nil {
		return err
	}
	row := results[0].Row(totalSlack)
	if err := coldrun.Table(os.Stdout, coldrun.Lines([]coldrun.Row{row})); err != nil {
		return err
	}
	for _, slower := range coldrun.Slower([]coldrun.Row{row}) {
		fmt.Println("\nMISSED  on is faster than off:", slower)
	}
	fmt.Println("\nOne of the requests with Headstart:")
	fmt.Println()
	if err := trace.Waterfall(os.Stdout, coldrun.Typical(row.Result.On).Trace, trace.WaterfallOptions{Width: width}); err != nil {
		return err
	}
	if results[0].Wrong > 0 {
		return fmt.Errorf("%d answers were wrong", results[0].Wrong)
	}
	return nil
}
