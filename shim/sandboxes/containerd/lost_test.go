package containerd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// A request whose instance went with its containerd may have another one; no other failure is
// taken for that.
func TestWhatGoesWithContainerd(t *testing.T) {
	reset := fmt.Errorf(
		"creating the container: %w", fmt.Errorf("connection reset by peer: %w", errdefs.ErrUnavailable),
	)
	if err := lost(reset); problem.ReasonOf(err) != problem.ReasonInstanceGone || !errors.Is(
		err, errdefs.ErrUnavailable,
	) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{nil, errors.New("no space left"), errdefs.ErrNotFound} {
		if lost(err) != err {
			t.Errorf("%v becomes %v", err, lost(err))
		}
	}
}
