package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// One case is shown a second time with a function that takes slowStart longer to start,
// as one in Python or on a JVM does: there the transfer hides behind the cold start.
const (
	slowKey   = "32"
	slowStart = 1500 * time.Millisecond
)

// testCase is a case with what its functions need.
type testCase struct {
	coldrun.Case
	env map[string]string
}

// prepare stores the inputs and deploys the functions.
func prepare(ctx context.Context, bed *testbed.Bed, own *os.File) ([]testCase, error) {
	var cases []testCase
	for _, mb := range sizes {
		progress(fmt.Sprintf("video of %d MB", mb))
		c, err := coldrun.Generated(ctx, bed.S3, mb)
		if err != nil {
			return nil, err
		}
		cases = append(cases, testCase{Case: c})
	}
	if own != nil {
		c, err := coldrun.Stored(ctx, bed.S3, own, "INPUT", "input")
		if err != nil {
			return nil, err
		}
		cases = append(cases, testCase{Case: c})
	}
	for _, c := range cases {
		if c.Key == slowKey {
			slow := c
			slow.Label, slow.Key, slow.env = c.Label+", slow start", c.Key+"_slow", map[string]string{"FIRE_STARTUP": slowStart.String()}
			slow.Off, slow.On = slow.Off+"-slow", slow.On+"-slow"
			cases = append(cases, slow)
		}
	}
	for i, c := range cases {
		for n := range repetitions {
			key := fmt.Sprintf("again/%s.%d.mjpeg", c.Key, n)
			if err := bed.S3.Copy(ctx, c.Object, key); err != nil {
				return nil, err
			}
			cases[i].Again = append(cases[i].Again, key)
		}
	}
	var functions []testbed.Function
	for _, c := range cases {
		// One second is the shortest idle window: the demo needs its functions cold.
		idle := map[string]string{"headstart.dev/scale-to-zero": "1s"}
		functions = append(functions, testbed.Function{Name: c.Off, Image: testbed.Fire, Node: testbed.Edge, Env: c.env, Annotations: idle},
			testbed.Function{Name: c.On, Image: testbed.Fire, Node: testbed.Edge, Env: c.env, Annotations: map[string]string{
				"headstart.dev/scale-to-zero": "1s", "headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store}})
	}
	return cases, bed.Apply(ctx, functions...)
}
