package embedded

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// idle makes the test binary a process that does nothing until its input ends, so that
// it cannot outlive the test.
const idle = "HEADSTART_TEST_IDLE"

func TestMain(m *testing.M) {
	if os.Getenv(idle) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
