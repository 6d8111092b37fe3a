package main

import (
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve sends each client's first bytes back, and then closes the connection.
func serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			message := make([]byte, messageBytes)
			n, _ := c.Read(message)
			c.Write(message[:n])
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestOnce(t *testing.T) {
	var r report.Report
	if err := once(t.Context(), time.Now(), "tcp", "dial", serve(t), 0, &r); err != nil {
		t.Fatal(err)
	}
	if r.Usable <= 0 || r.First < r.Usable || r.Again != 0 {
		t.Errorf("%+v", r)
	}
	if err := once(t.Context(), time.Now(), "tcp", "dial", serve(t), 1, &r); err == nil {
		t.Error("a server that has gone answers again")
	}
}

func TestAProgramsFirstByteIsItsAnswer(t *testing.T) {
	took, err := answers(t.Context(), "sh", []string{"-c", "echo yes; echo again"})
	if err != nil || took <= 0 {
		t.Errorf("%s, %v", took, err)
	}
	for _, script := range []string{"exit 0", "echo yes; exit 1"} {
		if _, err := answers(t.Context(), "sh", []string{"-c", script}); err == nil {
			t.Errorf("%q has answered", script)
		}
	}
}

func TestWhatCannotBeDone(t *testing.T) {
	for _, args := range [][]string{
		nil, {"tcp", "dial"}, {"tcp", "dial", "127.0.0.1:1"}, {"tcp", "fly", "there"}, {"fax", "dial", "there"},
		{"tcp", "descriptor", "orders"}, {"tcp", "fetch", "orders"}, {"tcp", "socket", "orders"},
		{"tcp", "dial", "there", "twice"},
		{"postgres", "socket", "orders"}, {"exec", "/none", "x"},
	} {
		if err := run(time.Now(), args); err == nil {
			t.Errorf("%q is done", args)
		}
	}
	t.Setenv("HEADSTART_DESCRIPTORS", "sessions")
	if _, err := inherited("orders"); err == nil {
		t.Error("another's descriptor is inherited")
	}
	os.Unsetenv("HEADSTART_DESCRIPTORS")
}
