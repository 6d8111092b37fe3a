package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
)

// Limits on the control plane's own words, far above any cluster's: a mistake there must
// not take the nodes' memory.
const (
	// maxResources is functions of 65 namespaces that have as many as they may, and what a gateway has
	// besides. A namespace that makes more of them meets its own limit first.
	maxResources = 65_536
	// maxBytes is the size of all resources of a type together, as one message, and of all
	// there are on disk.
	maxBytes = 64 << 20
)

// resources are those of one type that the gateways are to have.
type resources struct {
	typeURL string
	// publish hands on what has changed; mu is held.
	publish func(added map[string]*discovery.Resource, removed []string) error
	// check, if there is one, is of more than the type says.
	check func(types.Resource) error
	// most and mostBytes are how much of it is taken.
	most, mostBytes int

	primed chan struct{} // closed when something is known, if only that there is nothing
	once   sync.Once
	// changed holds a token when there is something to save, of this or another type.
	changed chan struct{}

	mu     sync.Mutex
	byName map[string]*discovery.Resource // as the control plane sent them
	bytes  int
}

func newResources(
	typeURL string, changed chan struct{}, publish func(map[string]*discovery.Resource, []string) error,
) *resources {
	return &resources{typeURL: typeURL, publish: publish, most: maxResources, mostBytes: maxBytes,
		primed: make(chan struct{}), changed: changed, byName: map[string]*discovery.Resource{}}
}

// apply takes over what a response changes, or nothing of it.
func (e *resources) apply(r *discovery.DeltaDiscoveryResponse) error {
	added := make(map[string]*discovery.Resource, len(r.GetResources()))
	for _, res := range r.GetResources() {
		if err := e.checkMessage(res); err != nil {
			return err
		}
		added[res.GetName()] = res
	}
	removed := slices.DeleteFunc(slices.Clone(r.GetRemovedResources()), func(name string) bool { return added[name] != nil })
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.replace(added, removed); err != nil {
		return err
	}
	if len(added)+len(removed) > 0 {
		if err := e.publish(added, removed); err != nil {
			return fmt.Errorf("handing resources on: %w", err)
		}
		signal(e.changed)
	}
	e.prime()
	return nil
}

func (e *resources) prime() { e.once.Do(func() { close(e.primed) }) }

// signal leaves a token: its receiver finds all that is new by then.
func signal(token chan<- struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// replace keeps what came, if that is not too much; e.mu is held.
func (e *resources) replace(added map[string]*discovery.Resource, removed []string) error {
	count, bytes := len(e.byName), e.bytes
	forget := func(name string) {
		if old, ok := e.byName[name]; ok {
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
	if count > e.most || bytes > e.mostBytes {
		return fmt.Errorf("%d resources of %d bytes, at most %d of %d are taken", count, bytes, e.most, e.mostBytes)
	}
	for _, name := range removed {
		delete(e.byName, name)
	}
	maps.Copy(e.byName, added)
	e.bytes = bytes
	return nil
}

// checkMessage checks a resource: Envoy would refuse a wrong one, and all that comes with it.
func (e *resources) checkMessage(res *discovery.Resource) error {
	name, kind := res.GetName(), short(e.typeURL)
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("a name of %d bytes, must be 1 to %d", len(name), maxNameBytes)
	}
	if got := res.GetResource().GetTypeUrl(); got != e.typeURL {
		return fmt.Errorf("%s %q is a %.*q", kind, name, maxNameBytes, got)
	}
	res.Resource.TypeUrl = e.typeURL // the same string for all of them: there are thousands
	m, err := res.GetResource().UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	if inside := cache.GetResourceName(m); inside != name {
		return fmt.Errorf("%s %q is named %.*q inside", kind, name, maxNameBytes, inside)
	}
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("%s %q: %w", kind, name, err)
		}
	}
	if e.check != nil {
		if err := e.check(m); err != nil {
			return fmt.Errorf("%s %q: %w", kind, name, err)
		}
	}
	return nil
}

// short is a type's own name.
func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }

// versions are what the control plane need not send again.
func (e *resources) versions() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := make(map[string]string, len(e.byName))
	for name, res := range e.byName {
		v[name] = res.GetVersion()
	}
	return v
}

func (e *resources) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.byName)
}

// all is everything, sorted by name.
func (e *resources) all() []*discovery.Resource {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*discovery.Resource, 0, len(e.byName))
	for _, name := range slices.Sorted(maps.Keys(e.byName)) {
		all = append(all, e.byName[name])
	}
	return all
}
