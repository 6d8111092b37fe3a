package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

const fireManifest = `
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: fire
spec:
  template:
    spec:
      containers:
      - image: example.com/fire:1
`

// valid is a configuration that starts, with all that it names.
func valid(t *testing.T) config {
	t.Helper()
	authority, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := authority.Issue("headstart-controlplane")
	if err != nil {
		t.Fatal(err)
	}
	return config{stateDir: t.TempDir(), runDir: t.TempDir(), listen: "127.0.0.1:0", cert: f.Cert, key: f.Key, ca: f.CA,
		logLevel: "error"}
}

func TestRunServesTheOperatorUntilItIsToldToEnd(t *testing.T) {
	c := valid(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runLocal(ctx, c) }()
	client := admin.NewClient(c.socket("admin.sock"))
	late := time.After(patience)
	for {
		if _, err := client.Status(ctx); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("ended by itself: %v", err)
		case <-late:
			t.Fatal("nobody answers")
		case <-time.After(time.Millisecond):
		}
	}
	for _, name := range []string{"admin.sock", "otlp.sock"} {
		info, err := os.Stat(c.socket(name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	applied, err := client.Apply(ctx, strings.NewReader(fireManifest))
	if err != nil || len(applied) != 1 {
		t.Errorf("applying: %v, %v", applied, err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

func TestRunSaysWhatItCannotUse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config)
		want   string
	}{
		"log level":     {func(c *config) { c.logLevel = "loud" }, `--log-level "loud": use debug, info, warn or error`},
		"certificate":   {func(c *config) { c.cert = "/none.pem" }, "loading certificate /none.pem and its key"},
		"authority":     {func(c *config) { c.ca = "/none.pem" }, "reading authority: open /none.pem"},
		"stores":        {func(c *config) { c.stores = "/none.yaml" }, "/none.yaml"},
		"destinations":  {func(c *config) { c.destinations = "/gone.yaml" }, "/gone.yaml"},
		"run directory": {func(c *config) { c.runDir = filepath.Join(c.cert, "run") }, "making the directory for sockets"},
	} {
		t.Run(name, func(t *testing.T) {
			config := valid(t)
			c.change(&config)
			if err := runLocal(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %s", err, c.want)
			}
		})
	}
}
