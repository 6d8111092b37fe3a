package stores

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who keeps out of the way waits for the last transfer, and no longer than he wants to.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stores{}
		idle := func(most time.Duration) time.Duration {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			s.Idle(ctx)
			return time.Since(began)
		}
		if took := idle(time.Hour); took != 0 {
			t.Errorf("with nothing under way: %v", took)
		}
		first, second := s.traffic.enter(), s.traffic.enter()
		time.AfterFunc(time.Second, first)
		time.AfterFunc(3*time.Second, second)
		if took := idle(2 * time.Second); took != 2*time.Second {
			t.Errorf("as long as it wants to: %v", took)
		}
		if took := idle(time.Hour); took != time.Second {
			t.Errorf("until the last has ended: %v", took)
		}
		if took := idle(time.Hour); took != 0 {
			t.Errorf("after it: %v", took)
		}
	})
}
