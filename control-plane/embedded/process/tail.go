package process

import (
	"io"
	"strings"
	"sync"
)

// tailBytes is about a screen of log: enough to hold the message that says why.
const tailBytes = 4 << 10

// tail remembers the end of what a child writes and passes everything on.
type tail struct {
	next io.Writer // may be nil

	mu   sync.Mutex
	last []byte
}

// Write never fails: a full disk under the log would otherwise kill the child with
// SIGPIPE.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, p...)
	if cut := len(t.last) - tailBytes; cut > 0 {
		t.last = append(t.last[:0], t.last[cut:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}
