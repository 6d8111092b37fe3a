//go:build cluster

package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/cluster/faults"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

const (
	openTimeout = 10 * time.Minute
	runTimeout  = 40 * time.Minute
	// onlyEnv names the faults to try, separated by commas. Empty: all.
	onlyEnv = "HEADSTART_FAULTS"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No request that would have worked without Headstart fails because of it, whatever else
// fails.
func TestNoRequestIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), openTimeout+runTimeout)
	defer cancel()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	config := world.Config{Source: source, WorkDir: filepath.Join(source, "out/cluster"), Reuse: true, Progress: func(s string) { t.Log(s) }}
	w := open(ctx, t, config)
	result, err := faults.RunOnly(ctx, w, config.Progress, chosen()...)
	if err != nil {
		t.Error(err)
	}
	for _, o := range result.Outcomes {
		if o.Lost() > 0 || len(o.Broken) > 0 {
			t.Errorf("%v", o)
		}
		if o.Hot.Function.Sent == 0 || o.Hot.Ordinary.Sent == 0 || o.Input.Function.Sent == 0 || o.Cold.AtZero == 0 {
			t.Errorf("%s: not all of the load was there: %v", o.Name, o)
		}
	}
	t.Logf("%v", result.Summary())
}

// open takes the cluster that runs, or brings one up, and installs Headstart.
func open(ctx context.Context, t *testing.T, config world.Config) *world.World {
	t.Helper()
	w, err := world.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	values, err := w.BuildImages(ctx, "faults")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Install(ctx, values); err != nil {
		t.Fatal(err)
	}
	return w
}

// chosen are the faults to try: those of onlyEnv, or all, or with -short the core.
func chosen() []string {
	if only := os.Getenv(onlyEnv); only != "" {
		return strings.Split(only, ",")
	}
	if testing.Short() {
		return faults.Core()
	}
	return faults.Names()
}
