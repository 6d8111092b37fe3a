package relay

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

// edsService serves Envoys whose clusters name the relay as their source of endpoints.
type edsService struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
	relay *Relay
}

func (s *edsService) DeltaEndpoints(str endpointservice.EndpointDiscoveryService_DeltaEndpointsServer) error {
	return s.relay.serve(str, resource.EndpointType, s.relay.kind(resource.EndpointType))
}

// adsService serves the same over one stream for all clusters.
type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	relay *Relay
}

func (s *adsService) DeltaAggregatedResources(str discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.relay.serve(str, resource.AnyType, s.relay.sources[0].kinds...)
}

// serve is one stream of an Envoy. It says nothing while the relay knows nothing of kinds: an
// Envoy that has endpoints shall not be told that there are none.
func (r *Relay) serve(str stream.DeltaStream, typeURL string, kinds ...*resources) error {
	leave, err := r.enter(str.Context())
	if err != nil {
		return err
	}
	defer leave()
	waits := make([]<-chan struct{}, 0, len(kinds)+1)
	for _, k := range kinds {
		waits = append(waits, k.primed)
	}
	if r.own != nil {
		waits = append(waits, r.own.known)
	}
	for _, primed := range waits {
		select {
		case <-primed:
		case <-str.Context().Done():
			return status.FromContextError(str.Context().Err()).Err()
		}
	}
	r.cfg.Metrics.streams.Inc()
	defer r.cfg.Metrics.streams.Dec()
	guarded := &guarded{DeltaStream: str, relay: r, typeURL: typeURL, names: map[subscribed]struct{}{},
		sent: map[string]sentLast{}, waiting: map[string]*question{}, untold: map[string]int{}}
	r.gateways.join(guarded)
	defer guarded.close()
	var peer stream.DeltaStream = guarded
	if r.own != nil {
		peer = module.Late(guarded)
	}
	named := []string{resource.EndpointType, resource.RouteType, resource.ExtensionConfigType}
	// Of the context only its end counts, and the peer's shows in Recv.
	streams := delta.NewServer(context.Background(), guarded, nil, delta.DeactivateLegacyWildcardForTypes(named))
	if err := streams.DeltaStreamHandler(peer, typeURL); err != nil {
		return err
	}
	return guarded.why()
}

// limits count what all peers together have open.
type limits struct{ streams, names atomic.Int64 }

func (l *limits) enter() (leave func(), err error) {
	if l.streams.Add(1) > maxStreams {
		l.streams.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "%d streams are open", maxStreams)
	}
	return func() { l.streams.Add(-1) }, nil
}

// guarded is a stream whose requests are looked at before they are believed.
type guarded struct {
	stream.DeltaStream
	relay   *Relay
	typeURL string // of requests that name none

	mu      sync.Mutex
	names   map[subscribed]struct{}
	sent    map[string]sentLast // by type
	closed  bool
	refused error
	warned  bool
	met     bool // it has said who it is
	noWasm  bool // it refuses each filter, as is told of it once

	// waiting are its questions by type, untold the responses of which it has not said yet that it has
	// taken or refused them: what it asked for before they came is no word on them. Of the relay's
	// gateways' mu.
	waiting map[string]*question
	untold  map[string]int
}

// sentLast is the last response of a type.
type sentLast struct {
	nonce string
	names []string // if they are few
}

// subscribed is a resource that a stream asks for.
type subscribed struct{ typeURL, name string }

// Send sends a response, which the peer may refuse.
func (g *guarded) Send(r *discovery.DeltaDiscoveryResponse) error {
	g.note(r)
	return g.DeltaStream.Send(r)
}

func (g *guarded) note(r *discovery.DeltaDiscoveryResponse) {
	last := sentLast{nonce: r.GetNonce()}
	if all := r.GetResources(); len(all) <= maxRefusedNames {
		for _, res := range all {
			last.names = append(last.names, res.GetName())
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent[r.GetTypeUrl()] = last
}

// Recv returns the next request, or why the stream ends.
func (g *guarded) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	r, err := g.DeltaStream.Recv()
	if err != nil {
		return nil, err
	}
	g.meet(r.GetNode())
	// Nobody asks any more, and each of its streams would hold some 100 KiB of it.
	r.Node = nil
	if err := g.check(r); err != nil {
		return nil, err
	}
	return r, nil
}

// meet looks at what an own gateway says of its program, once.
func (g *guarded) meet(node *core.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.met || g.relay.own == nil {
		return
	}
	g.met = true
	problem, wasm := g.relay.cfg.Gateway.Problem(node)
	if g.noWasm = !wasm; problem != "" && !g.closed {
		g.relay.refusals.add(refusedBy{stream: g}, refusal{words: problem})
	}
}

func (g *guarded) check(r *discovery.DeltaDiscoveryRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused = g.account(r); g.refused != nil {
		return g.refused
	}
	if !g.closed {
		g.answered(r)
	}
	return nil
}

// answered takes the peer's word on what it was told, if r has one; g.mu is held.
func (g *guarded) answered(r *discovery.DeltaDiscoveryRequest) {
	by := refusedBy{g, cmp.Or(r.GetTypeUrl(), g.typeURL)}
	switch {
	case !g.relay.gateways.serves(by.typeURL): // a stream of several types, whose first request names none
	case g.noWasm && by.typeURL == resource.ExtensionConfigType: // as the problem of its program says
	case r.GetErrorDetail() != nil:
		what := refusal{words: cut(r.GetErrorDetail().GetMessage())}
		if last := g.sent[by.typeURL]; last.nonce == r.GetResponseNonce() {
			what.names = last.names
		}
		g.relay.cfg.Metrics.refused.WithLabelValues(short(by.typeURL)).Inc()
		g.relay.refusals.add(by, what)
		if !g.warned {
			g.warned = true // once a stream: its words are as many as the peer likes
			g.relay.cfg.Log.Error("a gateway refused what it was told, and keeps what it had",
				"type", short(by.typeURL), "resources", what.names, "error", what.words)
		}
	case r.GetResponseNonce() != "":
		g.relay.refusals.taken(by)
	}
}

// account books the names that a request adds and takes away; g.mu is held.
func (g *guarded) account(r *discovery.DeltaDiscoveryRequest) error {
	if t := r.GetTypeUrl(); t != "" && !g.relay.gateways.serves(t) {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	for name := range r.GetInitialResourceVersions() {
		if len(name) > maxNameBytes {
			return status.Errorf(codes.InvalidArgument, "a name of over %d bytes", maxNameBytes)
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if len(name) > maxNameBytes {
			return status.Errorf(codes.InvalidArgument, "a name of over %d bytes", maxNameBytes)
		}
		name := subscribed{r.GetTypeUrl(), name}
		if _, ok := g.names[name]; ok || g.closed {
			continue
		}
		if g.relay.limits.names.Add(1) > maxNames {
			g.relay.limits.names.Add(-1)
			return status.Errorf(codes.ResourceExhausted, "%d names are subscribed to", maxNames)
		}
		g.names[name] = struct{}{}
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		name := subscribed{r.GetTypeUrl(), name}
		if _, ok := g.names[name]; ok {
			delete(g.names, name)
			g.relay.limits.names.Add(-1)
		}
	}
	return nil
}

// why is the reason for which Recv ended the stream, nil if the peer did.
func (g *guarded) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// close gives back what the stream's names took.
func (g *guarded) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.relay.limits.names.Add(int64(-len(g.names)))
	g.names = nil
	g.relay.gateways.leave(g)
	g.relay.refusals.gone(g)
}
