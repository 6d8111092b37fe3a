//go:build cluster

package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

const (
	// victimEnv makes the test binary a supervisor that a test can kill.
	victimEnv = "HEADSTART_CLUSTER_VICTIM"
	// upTimeout and downTimeout are for a machine that others keep busy.
	upTimeout   = 5 * time.Minute
	downTimeout = 3 * time.Minute
	// settleTimeout bounds what the cluster does by itself.
	settleTimeout = 2 * time.Minute
	pollInterval  = 100 * time.Millisecond
	image         = cluster.Registry + "/hello:1"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if _, err := cluster.Up(context.Background(), cluster.Config{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("up")
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

// up brings a cluster up for one test.
func up(t *testing.T) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), upTimeout)
	defer cancel()
	c, err := cluster.Up(ctx, cluster.Config{Progress: func(step string) { t.Log(step) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t, c) })
	return c
}

func down(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if err := c.Down(ctx); err != nil {
		t.Error(err)
	}
}

// helloImage builds the image of what the tests run in pods.
func helloImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "hello"), filepath.Join(dir, "hello.tar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	err = ociimage.Build(w, ociimage.Image{Ref: image, Entrypoint: []string{"/hello"}, Files: map[string]ociimage.File{"/hello": {Source: program, Mode: 0o755}}})
	if err := errors.Join(err, w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return archive
}

// kubectl runs a kubectl command and returns what it says.
func kubectl(t *testing.T, c *cluster.Cluster, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t.Context(), c, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryKubectl(ctx context.Context, c *cluster.Cluster, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	cmd := c.Kubectl(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// eventually asks until there is no error.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}
