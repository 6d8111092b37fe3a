package instancetest_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/instance/instancetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	instancetest.Run(t, func(*testing.T) instancetest.Node {
		node := instancetest.NewMemory(91)
		return instancetest.Node{
			Open:  func(*testing.T) (instance.Runtime, func()) { return node, func() {} },
			Image: instancetest.Image,
			Left: func(_ *testing.T, id string) []string {
				return slices.DeleteFunc(node.Sandboxes(), func(other string) bool { return other != id })
			},
		}
	})
}
