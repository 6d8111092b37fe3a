package xds

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	deltastream "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// stream is one node's stream: go-control-plane speaks the protocol, and asks it what
// the node lacks (cache.ConfigWatcher). The library's own caches would not do: the linear
// one has the same for all nodes, the snapshot cache hashes everything of every node for
// each change.
type stream struct {
	server  *Server
	content content
	peer    *caller
	names   int // it has asked for, one by one

	// Of the server's mu.
	upTo    uint64    // the change up to which the node was told
	waiting *question // nil while a response is on its way to the node, or before its first request
	refused string    // the node's words on the last response; empty if it took it
}

// maxNames is how many names one stream may ask for in its life, in place of all there
// are: as many as a daemon takes from its gateways.
const maxNames = 1 << 16

// question is a request that is answered when something changes.
type question struct {
	request *discovery.DeltaDiscoveryRequest
	has     cache.Subscription
	out     chan<- cache.DeltaResponse
}

// serve is one stream, from its beginning to its end. It waits for the first state.
func (m *Server) serve(str deltastream.DeltaStream, c content) error {
	select {
	case <-m.published:
	case <-str.Context().Done():
		return status.FromContextError(str.Context().Err()).Err()
	}
	s := &stream{server: m, content: c, peer: m.peers.open(str.Context())}
	return delta.NewServer(context.Background(), s, s).DeltaStreamHandler(str, resource.AnyType)
}

// OnDeltaStreamOpen implements delta.Callbacks.
func (s *stream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements delta.Callbacks.
func (s *stream) OnDeltaStreamClosed(int64, *core.Node) {
	s.peer.close()
	s.server.forget(s)
}

// OnStreamDeltaRequest implements delta.Callbacks: it verifies the peer and books what it
// refuses.
func (s *stream) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	first, err := s.peer.identify(r.GetNode())
	if err != nil {
		return err
	}
	if r.GetTypeUrl() != s.content.typeURL() {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	if s.names += len(r.GetResourceNamesSubscribe()); s.names > maxNames {
		return status.Errorf(
			codes.ResourceExhausted, "%d names were asked for, at most %d are on one stream", s.names, maxNames,
		)
	}
	r.Node = nil // it says no more, and the library would keep it
	words := refusalText(r)
	if words != "" {
		s.server.log.Error("node refused its "+s.content.String(), "node", s.peer.id, "error", words)
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if first {
		s.server.streams[s] = struct{}{}
	}
	if r.GetResponseNonce() != "" {
		s.refused = words
	}
	return nil
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (s *stream) OnStreamDeltaResponse(int64, *discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse) {
}

// CreateWatch implements cache.ConfigWatcher; only delta is served.
func (s *stream) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errors.New("only delta is served")
}

// CreateDeltaWatch implements cache.ConfigWatcher. The library calls it for each request,
// acknowledgements among them, which need a look only at what changed meanwhile.
func (s *stream) CreateDeltaWatch(
	r *discovery.DeltaDiscoveryRequest, has cache.Subscription, out chan cache.DeltaResponse,
) (func(), error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	q := &question{request: r, has: has, out: out}
	acknowledges := r.GetResponseNonce() != ""
	names, known := s.server.since(s.upTo)
	if !acknowledges || !known || len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe()) > 0 {
		names = s.all(has)
	}
	// Envoy waits for an answer to its first question, if only an empty one.
	if s.answer(q, names, nil, !acknowledges && has.IsWildcard()) {
		return nil, nil
	}
	s.waiting = q
	s.server.move()
	return func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.waiting = nil
	}, nil
}

// all are the names of which the node may lack something.
func (s *stream) all(has cache.Subscription) []string {
	names := maps.Clone(has.SubscribedResources())
	if names == nil || has.IsWildcard() {
		names = make(map[string]struct{}, len(s.server.functions))
		for name := range s.server.functions {
			names[name] = struct{}{}
		}
	}
	for name := range has.ReturnedResources() {
		names[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}

// changed answers the request that waits, if there is one; the server's mu is held.
func (s *stream) changed(shared payloads) {
	if s.waiting == nil {
		return
	}
	names, known := s.server.since(s.upTo)
	if !known {
		names = s.all(s.waiting.has)
	}
	if s.answer(s.waiting, names, shared, false) {
		s.waiting = nil
	}
}

// answer tells the node what it lacks of names, if anything; the server's mu is held.
func (s *stream) answer(q *question, names []string, shared payloads, always bool) bool {
	s.upTo = s.server.seq
	a := &answer{stream: s, request: q.request, has: q.has, seq: s.server.seq}
	for _, name := range names {
		if _, asked := q.has.SubscribedResources()[name]; !asked && !q.has.IsWildcard() {
			continue
		}
		version, has := q.has.ReturnedResources()[name]
		now := ""
		f := s.server.functions[name]
		if f != nil {
			now = f.of(s.content, s.peer.id).version
		}
		switch {
		case now == "" && has:
			a.removed = append(a.removed, name)
		case now != "" && (!has || version != now):
			a.updated = append(a.updated, shared.of(payloadKey{s.content, name, now}, f.hotFunction, s.peer.id))
		}
	}
	if len(a.updated)+len(a.removed) == 0 && !always {
		return false
	}
	q.out <- a // there is room for more answers than a stream can have under way
	return true
}

// payload is one resource. The first stream that sends it encodes it, so that this is done by
// all cores, and not within an Update.
type payload struct {
	payloadKey
	function *hotFunction
	node     string // one of those that it is for
	once     sync.Once
	bytes    []byte
}

type payloadKey struct {
	content       content
	name, version string
}

// payloads are those of one Update: nodes with equal rows share one. They are not kept any
// longer, because with a row for each node they are many.
type payloads map[payloadKey]*payload

func (p payloads) of(k payloadKey, f *hotFunction, node string) *payload {
	if found := p[k]; found != nil {
		return found
	}
	made := &payload{payloadKey: k, function: f, node: node}
	if p != nil {
		p[k] = made
	}
	return made
}

func (p *payload) resource() *discovery.Resource {
	p.once.Do(func() { p.bytes = p.function.resource(p.content, p.node) })
	return &discovery.Resource{
		Name: p.name, Version: p.version, Resource: &anypb.Any{TypeUrl: p.content.typeURL(), Value: p.bytes},
	}
}

// answer is what the library sends, and then believes that the node has.
type answer struct {
	stream  *stream
	request *discovery.DeltaDiscoveryRequest
	has     cache.Subscription
	seq     uint64
	updated []*payload
	removed []string
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse, as all methods below.
func (a *answer) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	r := &discovery.DeltaDiscoveryResponse{
		TypeUrl: a.stream.content.typeURL(), SystemVersionInfo: a.GetResponseVersion(), RemovedResources: a.removed,
	}
	for _, p := range a.updated {
		r.Resources = append(r.Resources, p.resource())
	}
	return r, nil
}

// GetReturnedResources changes the stream's map in place: a copy for each change would cost
// each node what it has functions.
func (a *answer) GetReturnedResources() map[string]string {
	a.stream.server.mu.Lock() // the next question may wait already, and be looked at
	defer a.stream.server.mu.Unlock()
	has := a.has.ReturnedResources()
	for _, p := range a.updated {
		has[p.name] = p.version
	}
	for _, name := range a.removed {
		delete(has, name)
	}
	return has
}

func (a *answer) GetNextVersionMap() map[string]string              { return a.GetReturnedResources() }
func (a *answer) GetDeltaRequest() *discovery.DeltaDiscoveryRequest { return a.request }
func (a *answer) GetContext() context.Context                       { return a.stream.peer.ctx }
func (a *answer) GetResponseVersion() string                        { return strconv.FormatUint(a.seq, 10) }
func (a *answer) GetSystemVersion() (string, error)                 { return a.GetResponseVersion(), nil }

// maxRefusalBytes is the part of a node's words that is kept and logged.
const maxRefusalBytes = 1024

// refusalText is a peer's reason, cut to what may be kept and logged; empty if it refuses
// nothing.
func refusalText(r *discovery.DeltaDiscoveryRequest) string {
	if r.GetErrorDetail() == nil {
		return ""
	}
	if r.GetErrorDetail().GetMessage() == "" {
		return "without a reason"
	}
	text := strings.ToValidUTF8(r.GetErrorDetail().GetMessage(), "")
	return text[:min(len(text), maxRefusalBytes)]
}
