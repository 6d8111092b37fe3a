package ingress

import (
	"context"
	"net/http"
	"strings"
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
	byHost map[string]*nodeapi.Function
}

// NewFunctions returns an empty set that waits for the control plane.
func NewFunctions() *Functions {
	return &Functions{synced: make(chan struct{})}
}

// Set replaces all functions.
func (f *Functions) Set(all []*nodeapi.Function) {
	byName := make(map[string]*nodeapi.Function, len(all))
	byHost := map[string]*nodeapi.Function{}
	for _, fn := range all {
		byName[fn.GetName()] = fn
		for _, host := range fn.GetHosts() {
			byHost[host] = fn
		}
	}
	f.mu.Lock()
	f.byName, f.byHost = byName, byHost
	f.mu.Unlock()
	f.once.Do(func() { close(f.synced) })
}

// Lookup returns a function by its name, nil if there is none. It does not wait for the
// control plane.
func (f *Functions) Lookup(name string) *nodeapi.Function {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byName[name]
}

// Get returns a function by its name. It waits for the control plane's first word, and is a
// *problem.Problem if there is no such function.
func (f *Functions) Get(ctx context.Context, name string) (*nodeapi.Function, error) {
	return f.get(ctx, name, "")
}

// Find returns the function that answers to a host. It waits as Get does.
func (f *Functions) Find(ctx context.Context, host string) (*nodeapi.Function, error) {
	return f.get(ctx, "", host)
}

// get returns the function of a request, by its name or, where the gateway's filter did
// not say it, by the authority that the request is for. It waits for the control plane's
// first word.
func (f *Functions) get(ctx context.Context, name, authority string) (*nodeapi.Function, error) {
	if err := f.await(ctx); err != nil {
		return nil, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn := f.byName[name]
	if name == "" {
		fn = f.byHost[host(authority)]
	}
	if fn == nil {
		return nil, unknown()
	}
	return fn, nil
}

// await waits for the control plane's first word.
func (f *Functions) await(ctx context.Context) error {
	late := time.NewTimer(syncTimeout)
	defer late.Stop()
	select {
	case <-f.synced:
		return nil
	case <-late.C:
		return problem.New(http.StatusServiceUnavailable, "ControlPlaneAway", "",
			"the node has not heard from the control plane since it started; `headstart status` shows whether it runs")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unknown() *problem.Problem {
	return problem.New(http.StatusNotFound, problem.ReasonFunctionUnknown, "", "no such function is deployed")
}

// host is an authority's in lower case, without its port and the root's dot.
func host(authority string) string {
	if at := strings.LastIndexByte(authority, ':'); at >= 0 && !strings.HasSuffix(authority, "]") {
		authority = authority[:at]
	}
	return strings.TrimSuffix(strings.ToLower(authority), ".")
}
