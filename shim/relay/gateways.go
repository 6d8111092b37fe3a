package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// gateways are what the node's gateways get, and who of them lacks something of it. go-control-plane
// speaks the protocol, and asks here what a stream lacks (cache.ConfigWatcher). The library's own
// caches do not tell whether a gateway has taken what it was sent, which a Confirm asks for.
type gateways struct {
	confirmed func(id int64)

	mu      sync.Mutex
	served  map[string]map[string]*discovery.Resource // by type and name
	streams map[*guarded]struct{}
	asked   []int64 // Confirms that wait
	// follows: the control plane has said what is new since the stream with it began. A daemon that
	// has just been restarted serves what it knew before.
	follows bool
}

// question is a request that is answered when something changes: the gateway has all that it asked
// for by then, or has refused it.
type question struct {
	from    *guarded
	request *discovery.DeltaDiscoveryRequest
	has     cache.Subscription
	out     chan<- cache.DeltaResponse
}

func newGateways(confirmed func(id int64), types ...string) *gateways {
	g := &gateways{confirmed: confirmed, served: map[string]map[string]*discovery.Resource{},
		streams: map[*guarded]struct{}{}}
	for _, t := range types {
		g.served[t] = map[string]*discovery.Resource{}
	}
	return g
}

// serves tells whether there are resources of a type; the types stay the same.
func (g *gateways) serves(typeURL string) bool { return g.served[typeURL] != nil }

// set changes resources of a type, and tells the gateways. A version is its content's, so that a
// gateway takes a restarted daemon's as its own.
func (g *gateways) set(typeURL string, added map[string]*anypb.Any, removed []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	served := g.served[typeURL]
	changed := map[string]struct{}{}
	for name, a := range added {
		version := cache.HashResource(a.GetValue())
		if old := served[name]; old == nil || old.GetVersion() != version {
			served[name] = &discovery.Resource{Name: name, Version: version, Resource: a}
			changed[name] = struct{}{}
		}
	}
	for _, name := range removed {
		if served[name] != nil {
			delete(served, name)
			changed[name] = struct{}{}
		}
	}
	for s := range g.streams {
		if q := s.waiting[typeURL]; q != nil && g.answer(q, changed, false) {
			delete(s.waiting, typeURL)
		}
	}
}

// names are those of a type.
func (g *gateways) names(typeURL string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.served[typeURL]))
}

// answer tells a gateway what it lacks of the changed names, nil being all, if anything; mu is held.
func (g *gateways) answer(q *question, changed map[string]struct{}, always bool) bool {
	served, wanted, has := g.served[q.request.GetTypeUrl()], q.has.SubscribedResources(), q.has.ReturnedResources()
	a := &answer{question: q}
	look := func(name string) {
		version, had := has[name]
		_, asked := wanted[name]
		r := served[name]
		switch {
		case r == nil && had:
			a.removed = append(a.removed, name)
		case r != nil && (asked || q.has.IsWildcard()) && (!had || version != r.GetVersion()):
			a.updated = append(a.updated, r)
		}
	}
	switch {
	case changed == nil && q.has.IsWildcard():
		changed = map[string]struct{}{}
		for name := range served {
			changed[name] = struct{}{}
		}
		for name := range has {
			changed[name] = struct{}{}
		}
	case changed == nil, len(wanted) < len(changed) && !q.has.IsWildcard():
		changed = wanted // a mesh's gateways have a stream for each name
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		look(name)
	}
	if len(a.updated)+len(a.removed) == 0 && !always {
		return false
	}
	q.from.untold[q.request.GetTypeUrl()]++
	q.out <- a // there is room for more answers than a stream can have under way
	return true
}

// join and leave are a stream's beginning and end.
func (g *gateways) join(s *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams[s] = struct{}{}
}

func (g *gateways) leave(s *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.streams, s)
	g.confirm()
}

// ask has confirmed called when a gateway is connected, and each that is has taken or refused all
// that is served. One that comes back to a restarted daemon takes its time to.
func (g *gateways) ask(id int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, id)
	g.confirm()
}

// follow says whether the control plane is followed.
func (g *gateways) follow(is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.follows = is
	g.confirm()
}

// confirm answers those who wait, if there is a gateway and none is behind; mu is held.
func (g *gateways) confirm() {
	if len(g.asked) == 0 || !g.follows || len(g.streams) == 0 {
		return
	}
	for s := range g.streams {
		if g.isBehind(s) {
			return
		}
	}
	for _, id := range g.asked {
		g.confirmed(id)
	}
	g.asked = nil
}

func (g *gateways) isBehind(s *guarded) bool {
	for typeURL, served := range g.served {
		q := s.waiting[typeURL]
		if q == nil && len(served) > 0 || s.untold[typeURL] > 0 {
			return true
		}
		for name := range served {
			if _, has := q.has.ReturnedResources()[name]; !has {
				return true // it has not asked for it yet
			}
		}
	}
	return false
}

// CreateWatch implements cache.ConfigWatcher; only delta is served.
func (g *guarded) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errors.New("only delta is served")
}

// CreateDeltaWatch implements cache.ConfigWatcher. The library calls it for each request,
// acknowledgements among them.
func (g *guarded) CreateDeltaWatch(
	r *discovery.DeltaDiscoveryRequest, has cache.Subscription, out chan cache.DeltaResponse,
) (func(), error) {
	all := g.relay.gateways
	all.mu.Lock()
	defer all.mu.Unlock()
	q := &question{from: g, request: r, has: has, out: out}
	if of := r.GetTypeUrl(); r.GetResponseNonce() != "" && g.untold[of] > 0 {
		g.untold[of]--
	}
	// Envoy waits for an answer to its first question for all of a type, if only an empty one.
	if all.answer(q, nil, has.IsWildcard() && r.GetResponseNonce() == "") {
		return nil, nil
	}
	g.waiting[r.GetTypeUrl()] = q
	all.confirm()
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if g.waiting[r.GetTypeUrl()] == q {
			delete(g.waiting, r.GetTypeUrl())
		}
	}, nil
}

// answer is what the library sends, and then believes that the gateway has.
type answer struct {
	*question
	updated []*discovery.Resource
	removed []string
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse, as all methods below.
func (a *answer) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	return &discovery.DeltaDiscoveryResponse{
		TypeUrl: a.request.GetTypeUrl(), Resources: a.updated, RemovedResources: a.removed,
	}, nil
}

func (a *answer) GetReturnedResources() map[string]string {
	has := maps.Clone(a.has.ReturnedResources())
	for _, r := range a.updated {
		has[r.GetName()] = r.GetVersion()
	}
	for _, name := range a.removed {
		delete(has, name)
	}
	return has
}

func (a *answer) GetNextVersionMap() map[string]string              { return a.GetReturnedResources() }
func (a *answer) GetDeltaRequest() *discovery.DeltaDiscoveryRequest { return a.request }
func (a *answer) GetContext() context.Context                       { return context.Background() }
func (a *answer) GetResponseVersion() string                        { return "" }
func (a *answer) GetSystemVersion() (string, error)                 { return "", nil }
