// Package historytest runs a Prometheus server that has kept what a test says.
package historytest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

const (
	// readyTimeout covers a machine that compiles at the same time.
	readyTimeout = time.Minute
	readyPoll    = 50 * time.Millisecond
)

// Start returns the address of a server with the samples, which are in the format of OpenMetrics with timestamps. It ends with
// the test. Flags are further ones of the server.
func Start(t testing.TB, samples string, flags ...string) (address string) {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics",
		write(t, filepath.Join(dir, "samples"), strings.TrimSuffix(samples, "# EOF\n")+"# EOF\n"), data).CombinedOutput(); err != nil {
		t.Fatalf("promtool (make setup installs it): %v\n%s", err, out)
	}
	return serve(t, data, flags...)
}

func write(t testing.TB, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func serve(t testing.TB, data string, flags ...string) string {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), "prometheus", append(flags, "--config.file", write(t, filepath.Join(t.TempDir(), "config.yaml"), "{}\n"),
		"--storage.tsdb.path", data, "--storage.tsdb.retention.time", "400d", "--web.listen-address", address, "--log.level", "warn")...)
	server.Stdout, server.Stderr = &log, &log
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it has ended, or ends
		_ = server.Wait()                          // by a signal
	})
	url := "http://" + address
	for deadline := time.Now().Add(readyTimeout); ; <-time.After(readyPoll) {
		if r, err := http.Get(url + "/-/ready"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return url
			}
		}
		if time.Now().After(deadline) {
			_ = server.Process.Signal(syscall.SIGTERM)
			_ = server.Wait() // for its log
			t.Fatalf("Prometheus is not ready after %s:\n%s", readyTimeout, &log)
		}
	}
}
