package host_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/e2e/host"
)

func TestAMachineIsDescribed(t *testing.T) {
	m := host.Describe()
	for _, name := range []string{"cpus", "os", "arch", "go", "kernel", "cpu", "memory", "load"} {
		if v, ok := m[name]; !ok || v == "" || v == 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}
