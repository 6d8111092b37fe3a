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
// the test.
func Start(t testing.TB, samples string) (address string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics",
		write("samples", strings.TrimSuffix(samples, "# EOF\n")+"# EOF\n"), data).CombinedOutput(); err != nil {
		t.Fatalf("promtool (make setup installs it): %v\n%s", err, out)
	}
	address = fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), "prometheus", "--config.file", write("config.yaml", "{}\n"), "--storage.tsdb.path", data,
		"--storage.tsdb.retention.time", "400d", "--web.listen-address", address, "--log.level", "warn")
	server.Stdout, server.Stderr = &log, &log
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it has ended, or ends
		_ = server.Wait()                          // by a signal
	})
	address = "http://" + address
	for deadline := time.Now().Add(readyTimeout); ; <-time.After(readyPoll) {
		if r, err := http.Get(address + "/-/ready"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return address
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus is not ready after %s:\n%s", readyTimeout, &log)
		}
	}
}
