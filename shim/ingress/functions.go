package ingress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// syncTimeout is how long a request waits for the control plane's first word after a
// start of the daemon.
const syncTimeout = 5 * time.Second

// Functions are the functions that the node may serve, as the control plane says.
type Functions struct {
	synced chan struct{} // closed by the first Set
	once   sync.Once

	mu     sync.RWMutex
	byName map[string]*nodeapi.Function
}

// NewFunctions returns an empty set that waits for the control plane.
func NewFunctions() *Functions {
	return &Functions{synced: make(chan struct{})}
}

// Set replaces all functions.
func (f *Functions) Set(all []*nodeapi.Function) {
	byName := make(map[string]*nodeapi.Function, len(all))
	for _, fn := range all {
		byName[fn.GetName()] = fn
	}
	f.mu.Lock()
	f.byName = byName
	f.mu.Unlock()
	f.once.Do(func() { close(f.synced) })
}

func (f *Functions) get(ctx context.Context, name string) (*nodeapi.Function, error) {
	late := time.NewTimer(syncTimeout)
	defer late.Stop()
	select {
	case <-f.synced:
	case <-late.C:
		return nil, problem.New(http.StatusServiceUnavailable, "ControlPlaneAway", "",
			"the node has not heard from the control plane since it started; `headstart status` shows whether it runs")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return f.now(name)
}

// now does not wait for the control plane.
func (f *Functions) now(name string) (*nodeapi.Function, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if fn, ok := f.byName[name]; ok {
		return fn, nil
	}
	return nil, problem.New(http.StatusNotFound, "FunctionUnknown", "", "no such function is deployed")
}
