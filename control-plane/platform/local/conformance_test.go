package local

import (
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
)

func TestConformance(t *testing.T) {
	platformtest.Test(t, func(t *testing.T, test func(*testing.T, platformtest.World)) {
		inBubble(t, func(t *testing.T, w *world) { test(t, w) })
	})
}
