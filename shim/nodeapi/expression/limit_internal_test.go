package expression

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// An expression that has waited for a processor goes on; one that has had one for too long is ended, as is one whose run is over.
func TestOnlyWorkIsLimited(t *testing.T) {
	asks := func(ctx context.Context) error {
		for range 100 * stepsBetween {
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
			}
		}
		return nil
	}
	waited, stop := limit(t.Context())
	defer stop()
	waited.(*limited).began = time.Now().Add(-time.Hour)
	if err := asks(waited); err != nil {
		t.Errorf("after an hour's wait: %v", err)
	}
	worked, stop := limit(t.Context())
	defer stop()
	worked.(*limited).began, worked.(*limited).worked = time.Now().Add(-time.Hour), threadTime()-2*TimeLimit
	if err := asks(worked); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after too much work: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	over, stop := limit(left)
	defer stop()
	if err := asks(over); !errors.Is(err, context.Canceled) {
		t.Errorf("after its run: %v", err)
	}
}

// An expression that would work for hours is ended by its time.
func TestALongExpressionEnds(t *testing.T) {
	e, err := Parse("[.[] as $a | .[] as $b | .[] as $c | .[] as $d | select($a + $b + $c + $d < 0)] | length", nil)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]any, 1000)
	for i := range many {
		many[i] = i
	}
	if _, err := e.Eval(t.Context(), many); err == nil || !strings.Contains(err.Error(), "takes longer than 100ms") {
		t.Errorf("%v", err)
	}
}
