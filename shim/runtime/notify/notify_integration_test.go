//go:build integration

package notify

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The first calls of a container are urgent, and what comes after many is not.
func TestAttackAProgramConnectsInALoop(t *testing.T) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		priority := func() int {
			n, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
			if err != nil {
				t.Error(err)
			}
			return mostNice - n
		}
		var came atomic.Int64
		c := newCalls(-1, nil, &came)
		defer c.cancel()
		before := priority()
		ordinary := c.hasten()
		if got := priority(); got != urgent {
			t.Errorf("the first call is answered with the niceness %d", got)
		}
		ordinary()
		if got := priority(); got != before {
			t.Errorf("niceness %d, %d before", got, before)
		}
		came.Store(urgentLimit)
		c.hasten()
		if got := priority(); got != before {
			t.Errorf("a later process is answered with the niceness %d", got)
		}
	}()
	<-over
}
