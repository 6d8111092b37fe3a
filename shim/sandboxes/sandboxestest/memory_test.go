package sandboxestest_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	sandboxestest.Run(t, func(*testing.T) sandboxestest.Node {
		node := sandboxestest.NewMemory(91)
		return sandboxestest.Node{
			Open:  func(*testing.T) (sandboxes.Containers, func()) { return node, func() {} },
			Image: sandboxestest.Image,
			Left: func(_ *testing.T, id string) []string {
				return slices.DeleteFunc(node.Sandboxes(), func(other string) bool { return other != id })
			},
		}
	})
}
