// Command demo shows the main job on real parts: cold requests for a video function on
// an edge node whose input lies in the cloud, with Headstart off and on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// The emulated link: an edge site behind an access line of its region's cloud.
	linkDelay = 20 * time.Millisecond // one way
	linkRate  = 250_000_000           // bit/s
	// repetitions of each case; the table shows medians.
	repetitions = 3
)

// sizes of the generated inputs in MB (10^6 bytes).
var sizes = []int64{1, 32, 128}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.bin, "bin", "out/bin", "directory of what `make build` made")
	flag.StringVar(&o.out, "out", "out/demo", "directory for summary.json, the SVGs and the logs")
	flag.StringVar(&o.input, "input", "", "a video of your own (MJPEG) beside the generated ones")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		if errors.Is(err, errInterrupted) {
			fmt.Fprintln(os.Stderr, "interrupted; nothing is left running")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// errInterrupted: Ctrl-C, and all has been removed.
var errInterrupted = errors.New("interrupted")

type options struct{ bin, out, input string }

func progress(step string) { fmt.Fprintln(os.Stderr, "·", step) }

// run is the demo from top to bottom.
func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and containers need root: run `sudo make demo`")
	}
	for _, dir := range []*string{&o.bin, &o.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	var own *os.File
	if o.input != "" {
		if own, err = os.Open(o.input); err != nil {
			return fmt.Errorf("INPUT: %w", err)
		}
		defer own.Close()
	}
	began := time.Now()
	bed, err := testbed.Open(ctx, testbed.Config{Name: "hsdemo", BinDir: o.bin, WorkDir: o.out, Subnet: netip.MustParsePrefix("10.211.0.0/16"),
		Delay: linkDelay, Rate: linkRate, CacheAge: time.Hour, Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		progress("removing everything")
		if closed := bed.Close(); closed != nil {
			err = errors.Join(err, closed)
		} else if ctx.Err() != nil {
			err = errInterrupted
		}
	}()
	progress("image of the sample function")
	if err := bed.ImportImage(ctx, testbed.Fire); err != nil {
		return err
	}
	cases, err := prepare(ctx, bed, own)
	if err != nil {
		return err
	}
	progress(fmt.Sprintf("ready after %.0f s", time.Since(began).Seconds()))

	measured := make([]coldrun.Case, len(cases))
	for i, c := range cases {
		measured[i] = c.Case
	}
	run := coldrun.Run{World: coldrun.On{Bed: bed}, Repetitions: repetitions, Bucket: testbed.Bucket, Progress: progress, Downloaded: bed.Downloaded}
	results, err := run.Measure(ctx, measured)
	if err != nil {
		return err
	}
	progress("hot requests, with and without the filter")
	hot, err := measureHot(ctx, bed, o)
	if err != nil {
		return err
	}
	progress("functions that leave the body alone")
	lost, err := answersLost(ctx, bed)
	if err != nil {
		return err
	}
	s := summarize(results, hot, lost)
	if err := s.write(filepath.Join(o.out, "summary.json")); err != nil {
		return err
	}
	if err := show(os.Stdout, o, s); err != nil {
		return err
	}
	if s.AnswersWrong+s.answersLost > 0 {
		return fmt.Errorf("%d answers were wrong, %d were lost", s.AnswersWrong, s.answersLost)
	}
	return nil
}
