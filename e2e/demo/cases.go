package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// One case is shown a second time with a function that takes slowStart longer to start,
// as one in Python or on a JVM does: there the transfer hides behind the cold start.
const (
	slowKey   = "32"
	slowStart = 1500 * time.Millisecond
)

// megabyte is the unit of the table.
const megabyte = 1_000_000

// testCase is one input with the two functions that get it. Each case has functions of
// its own, so that they become cold while the others have their turn.
type testCase struct {
	label  string // in the table
	key    string // in the summary and in the store
	size   int64  // bytes
	sha256 string
	object string // in the store
	// truth is what the video shows; nil for the user's own.
	truth *mjpeggen.Truth
	off   string // the function as it is without Headstart
	on    string // the same with the input annotation
	env   map[string]string
}

// prepare stores the inputs and deploys the functions.
func prepare(ctx context.Context, bed *testbed.Bed, own *os.File) ([]testCase, error) {
	var cases []testCase
	for _, mb := range sizes {
		progress(fmt.Sprintf("video of %d MB", mb))
		f, truth, err := generated(mb * megabyte)
		if err != nil {
			return nil, err
		}
		c, err := store(ctx, bed, f, fmt.Sprintf("%d MB", mb), fmt.Sprint(mb))
		if err != nil {
			return nil, err
		}
		c.truth = &truth
		cases = append(cases, c)
	}
	if own != nil {
		c, err := store(ctx, bed, own, "INPUT", "input")
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	for _, c := range cases {
		if c.key == slowKey {
			slow := c
			slow.label, slow.key, slow.env = c.label+", slow start", c.key+"_slow", map[string]string{"FIRE_STARTUP": slowStart.String()}
			slow.off, slow.on = slow.off+"-slow", slow.on+"-slow"
			cases = append(cases, slow)
		}
	}
	var functions []testbed.Function
	for _, c := range cases {
		// One second is the shortest idle window: the demo needs its functions cold.
		idle := map[string]string{"headstart.dev/scale-to-zero": "1s"}
		functions = append(functions, testbed.Function{Name: c.off, Image: testbed.Fire, Node: testbed.Edge, Env: c.env, Annotations: idle},
			testbed.Function{Name: c.on, Image: testbed.Fire, Node: testbed.Edge, Env: c.env, Annotations: map[string]string{
				"headstart.dev/scale-to-zero": "1s", "headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store}})
	}
	return cases, bed.Apply(ctx, functions...)
}

func generated(size int64) (*os.File, mjpeggen.Truth, error) {
	f, err := os.CreateTemp("", "headstart-video-")
	if err != nil {
		return nil, mjpeggen.Truth{}, err
	}
	// The file lives as long as it is open, also if the demo is killed.
	if err := os.Remove(f.Name()); err != nil {
		return nil, mjpeggen.Truth{}, err
	}
	truth, err := mjpeggen.Generate(f, size, seed)
	return f, truth, err
}

func store(ctx context.Context, bed *testbed.Bed, f *os.File, label, key string) (testCase, error) {
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return testCase{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return testCase{}, err
	}
	sum, err := digest(f)
	if err != nil {
		return testCase{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return testCase{}, err
	}
	c := testCase{label: label, key: key, size: size, sha256: sum, object: "camera-7/" + key + ".mjpeg", off: "fire-" + key + "-off", on: "fire-" + key + "-on"}
	return c, bed.S3.Put(ctx, c.object, f)
}
