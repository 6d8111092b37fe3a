package process

import (
	"context"
	"errors"
	"time"
)

// askInterval is how often a starting process is asked whether it serves. A failed question costs
// microseconds.
const askInterval = 20 * time.Millisecond

// Poll returns a Spec's Ready that asks until the answer is yes, or ctx ends.
func Poll(ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(askInterval)
		defer tick.Stop()
		for {
			err := ask(ctx)
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-tick.C:
			}
		}
	}
}
