// Package redistest runs real Redis servers for tests.
package redistest

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

// program is Debian's; e2e/setup.sh installs it.
const program = "redis-server"

// ready is many times what the server takes until it listens.
const ready = 30 * time.Second

// Server is a Redis server of one test's own, without anything on disk.
type Server struct {
	Address string // 127.0.0.1 and a port

	t    *testing.T
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// Start starts a server; it ends with the test. args are more options, such as
// "--requirepass", "secret".
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	s := &Server{Address: porttest.Address(t), t: t, args: args}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("%s: %s", program, s.log.String())
		}
	})
	s.Restart()
	return s
}

// Stop kills the server, if it runs, and with it all that it holds.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	// Killed, so Wait always has an error to tell.
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Restart starts the server at its address, after it was stopped.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		s.t.Fatal(err)
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.t.TempDir()}
	s.cmd = exec.Command(program, append(args, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.t.Fatalf("%s is needed; e2e/setup.sh installs it: %v", program, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	for ticker := time.NewTicker(10 * time.Millisecond); ; {
		if conn, err := net.Dial("tcp", s.Address); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			s.t.Fatalf("%s does not listen: %s", program, s.log.String())
		}
	}
}
