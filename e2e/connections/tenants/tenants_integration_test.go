//go:build integration

package tenants_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/connections/tenants"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// handovers is how many `make test` has time for; `make soak` has more.
var handovers = flag.Int("handovers", 1000, "sessions that are opened")

// A log of the platform keeps one goroutine for good.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func TestTenants(t *testing.T) {
	c, err := tenants.Run(t.Context(), tenants.Config{BinDir: programtest.Path(t, "."), WorkDir: t.TempDir(),
		Handovers: *handovers,
		Progress:  func(step string) { t.Log(step) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c)
	if c.Handovers < *handovers {
		t.Errorf("%d hand-overs", c.Handovers)
	}
	if c.CrossTenant+c.Reused+c.Lost+c.Over+c.Leaks > 0 {
		t.Errorf("%d of another tenant, %d reused, %d lost, %d times over the budget, %d leaks: %q", c.CrossTenant,
			c.Reused, c.Lost, c.Over, c.Leaks, c.Said)
	}
}
