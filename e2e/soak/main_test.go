//go:build integration

// Package soak sends many requests through two nodes' real daemons while everything around
// them goes wrong: clients leave, stores fail, nodes die. Each request is answered right, or
// fails clearly, and nothing is left behind. What goes wrong when is planned from a seed:
// see plan.
package soak

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// What a soak is like. `make soak` sets these, and so does whoever repeats one.
var (
	seed     = flag.Uint64("seed", 7, "of the plan")
	requests = flag.Int("requests", 2000, "how many requests are sent")
	lasting  = flag.Duration("duration", 0, "send requests for so long, however many; 0: -requests of them")
	first    = flag.Int("first", 0, "the number of the first request")
	workers  = flag.Int("workers", 32, "how many requests are under way at a time")
	program  = flag.String("node", "", "the daemon's program; empty: headstart-node in $HEADSTART_BIN")
)

// patience is how long anything may take that the daemon bounds: more than all its bounds.
const patience = 100 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
