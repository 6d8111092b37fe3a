package workflow

import (
	"sync"

	"github.com/headstart-mesh/headstart/shim/fair"
)

// memory is what the values of runs may take.
type memory struct {
	mu    sync.Mutex
	share *fair.Share
}

// change takes so many bytes more for a workflow, or gives them back; why: it may not have them.
func (m *memory) change(workflow string, bytes int64) (why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case bytes < 0:
		m.share.Return(workflow, -bytes)
	case bytes > 0 && !m.share.Take(workflow, bytes):
		return m.share.Full(workflow, "bytes of runs")
	}
	return ""
}
