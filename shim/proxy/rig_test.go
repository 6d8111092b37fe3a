package proxy_test

import (
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is more than anything takes here; who waits for it has lost.
const soon = 10 * time.Second

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never happened: ", what)
		}
	}
}

// after is an empty reader that tells when it is read.
type after func()

func (a after) Read([]byte) (int, error) { a(); return 0, io.EOF }
