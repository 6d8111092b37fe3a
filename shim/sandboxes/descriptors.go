package sandboxes

import (
	"fmt"
	"os"
	"sync"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// Descriptor is an open file that a sandbox's program inherits.
type Descriptor struct {
	// Name is how the program finds it, in lower case.
	Name string
	// Open returns it when a container is being made, which gets it. Who opened it has no copy.
	Open func() (*os.File, error)
}

// handing has the needs of containers whose shims were told of descriptors, until they fetch
// them.
type handing struct {
	mu sync.Mutex
	of map[string]*needs // by the container
}

// expect notes that a container's shim is about to fetch descriptors, if it needs any.
func (h *handing) expect(container string, n *needs) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(n.descriptors()) > 0 {
		h.of[container] = n
	}
}

// left forgets a container that is gone.
func (h *handing) left(container string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, container)
}

// forget forgets the containers of a sandbox that is gone.
func (h *handing) forget(sandbox string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for container, n := range h.of {
		if n.sandbox == sandbox {
			delete(h.of, container)
		}
	}
}

// take opens the descriptors of a container, once.
func (h *handing) take(container string) (files []*os.File, err error) {
	h.mu.Lock()
	n := h.of[container]
	delete(h.of, container)
	h.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("container %.64q has no descriptors, or has fetched them", container)
	}
	for _, d := range n.descriptors() {
		f, err := d.Open()
		if err != nil {
			descriptors.CloseAll(files)
			return nil, fmt.Errorf("opening descriptor %s of container %.64q: %w", d.Name, container, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Descriptors opens the descriptors that a container was described with, for its shim, which may
// have them once. They are the caller's to close.
func (s *Set) Descriptors(container string) ([]*os.File, error) { return s.handing.take(container) }
