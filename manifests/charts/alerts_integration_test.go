//go:build integration

package charts_test

import (
	"os/exec"
	"testing"
)

// Alerts of events fire for the first one and after restarts, and no longer than they say.
func TestAlertsFire(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", "testdata/alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("promtool (make setup installs it): %v\n%s", err, out)
	}
}
