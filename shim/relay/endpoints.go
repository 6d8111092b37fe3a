package relay

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
)

// Limits on the control plane's own words, far above any cluster's: a mistake there must
// not take the nodes' memory.
const (
	// maxAssignments is as many functions as a gateway's filter takes.
	maxAssignments = 10_000
	// maxBytes is the size of all assignments together, as one message and on disk.
	maxBytes = 64 << 20
)

// endpoints are the assignments that the gateways are to have.
type endpoints struct {
	cache  *cache.LinearCache
	primed chan struct{} // closed when something is known, if only that there is nothing
	once   sync.Once
	// changed holds a token when there is something to save.
	changed chan struct{}

	mu        sync.Mutex
	resources map[string]*discovery.Resource // as the control plane sent them
	bytes     int
}

func newEndpoints() *endpoints {
	return &endpoints{cache: cache.NewLinearCache(resource.EndpointType), primed: make(chan struct{}), changed: make(chan struct{}, 1),
		resources: map[string]*discovery.Resource{}}
}

// apply takes over what a response changes, or nothing of it.
func (e *endpoints) apply(r *discovery.DeltaDiscoveryResponse) error {
	assignments := make(map[string]types.Resource, len(r.GetResources()))
	added := make(map[string]*discovery.Resource, len(r.GetResources()))
	for _, res := range r.GetResources() {
		a, err := assignment(res)
		if err != nil {
			return err
		}
		assignments[res.GetName()], added[res.GetName()] = a, res
	}
	removed := slices.DeleteFunc(slices.Clone(r.GetRemovedResources()), func(name string) bool { return added[name] != nil })
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.replace(added, removed); err != nil {
		return err
	}
	if len(added)+len(removed) > 0 {
		if err := e.cache.UpdateResources(assignments, removed); err != nil {
			return fmt.Errorf("handing assignments on: %w", err)
		}
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
	e.once.Do(func() { close(e.primed) })
	return nil
}

// replace keeps what came, if that is not too much; e.mu is held.
func (e *endpoints) replace(added map[string]*discovery.Resource, removed []string) error {
	count, bytes := len(e.resources), e.bytes
	forget := func(name string) {
		if old, ok := e.resources[name]; ok {
			count, bytes = count-1, bytes-proto.Size(old)
		}
	}
	for _, name := range removed {
		forget(name)
	}
	for name, res := range added {
		forget(name)
		count, bytes = count+1, bytes+proto.Size(res)
	}
	if count > maxAssignments || bytes > maxBytes {
		return fmt.Errorf("%d assignments of %d bytes, at most %d of %d are taken", count, bytes, maxAssignments, maxBytes)
	}
	for _, name := range removed {
		delete(e.resources, name)
	}
	maps.Copy(e.resources, added)
	e.bytes = bytes
	return nil
}

// assignment checks a resource: Envoy would refuse a wrong one, and all that comes with
// it.
func assignment(res *discovery.Resource) (*endpoint.ClusterLoadAssignment, error) {
	if res.GetName() == "" || len(res.GetName()) > maxNameBytes {
		return nil, fmt.Errorf("a name of %d bytes, must be 1 to %d", len(res.GetName()), maxNameBytes)
	}
	var a endpoint.ClusterLoadAssignment
	if err := res.GetResource().UnmarshalTo(&a); err != nil {
		return nil, fmt.Errorf("assignment %q: %w", res.GetName(), err)
	}
	if a.GetClusterName() != res.GetName() {
		return nil, fmt.Errorf("assignment %q is named %.*q inside", res.GetName(), maxNameBytes, a.GetClusterName())
	}
	if err := a.Validate(); err != nil {
		return nil, fmt.Errorf("assignment %q: %w", res.GetName(), err)
	}
	return &a, nil
}

// versions are what the control plane need not send again.
func (e *endpoints) versions() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := make(map[string]string, len(e.resources))
	for name, res := range e.resources {
		v[name] = res.GetVersion()
	}
	return v
}

func (e *endpoints) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.resources)
}

// all is everything as one response, which apply takes.
func (e *endpoints) all() *discovery.DeltaDiscoveryResponse {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := &discovery.DeltaDiscoveryResponse{TypeUrl: resource.EndpointType}
	for _, name := range slices.Sorted(maps.Keys(e.resources)) {
		all.Resources = append(all.Resources, e.resources[name])
	}
	return all
}

// saved takes the token of changed, and tells whether there was one.
func (e *endpoints) saved() bool {
	select {
	case <-e.changed:
		return true
	default:
		return false
	}
}
