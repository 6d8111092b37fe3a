package node

import (
	"context"
	"runtime/debug"
	"time"
)

// giveBackInterval is how often memory is returned. It costs some milliseconds of one core for each 10 MiB in use.
const giveBackInterval = 30 * time.Second

// GiveBack returns memory to the machine that the daemon no longer needs, until ctx ends. Go's runtime collects the
// garbage of thousands of functions that were told at once after two minutes, and then still keeps room for as much
// garbage as there is memory in use.
func GiveBack(ctx context.Context) {
	tick := time.NewTicker(giveBackInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			debug.FreeOSMemory()
		}
	}
}
