package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// maxUnacknowledged is per stream. Envoy has at most one or two responses of each type
// open; a peer that acknowledges nothing must not grow the ledger.
const maxUnacknowledged = 64

// maxRefusalBytes is the part of an Envoy's words that is kept and logged.
const maxRefusalBytes = 1024

// key names one resource.
type key struct{ typeURL, name string }

// publication is what one gateway is meant to have. It is never changed, only replaced.
type publication struct {
	seq    uint64
	hashes map[key]string
	// since is the seq with which each resource got its present content.
	since map[key]uint64
}

// version tells a resource from all that the gateway may have had before. The content's
// hash alone would not do: when a function goes from cold to hot and back, the gateway
// may still be on its way to hot, and only a new version makes it acknowledge. The seq
// alone would not do either, because another control plane counts again from one.
func (p *publication) version(k key) string { return fmt.Sprintf("%d-%s", p.since[k], p.hashes[k]) }

// ledger knows what was published and what each connected gateway has taken over.
type ledger struct {
	mu        sync.Mutex
	seq       uint64
	published map[string]*publication // by gateway
	streams   map[int64]*stream
	moved     chan struct{} // closed and replaced when a stream makes progress
}

// stream is one gateway's ADS stream.
type stream struct {
	gateway string
	build   build
	// taken is the seq from which each acknowledged resource came.
	taken   map[key]uint64
	sent    map[string]response // by nonce
	refused map[string]string   // by type URL, the gateway's last words
}

// response is one unacknowledged DeltaDiscoveryResponse.
type response struct {
	seq     uint64
	updated []key
	removed []key
}

func newLedger() *ledger {
	return &ledger{published: map[string]*publication{}, streams: map[int64]*stream{}, moved: make(chan struct{})}
}

// publish records what gateway is meant to have; false if that is nothing new.
func (l *ledger) publish(gateway string, hashes map[key]string) (*publication, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, ok := l.published[gateway]
	if ok && maps.Equal(old.hashes, hashes) {
		return old, false
	}
	l.seq++
	p := &publication{seq: l.seq, hashes: hashes, since: make(map[key]uint64, len(hashes))}
	for k, hash := range hashes {
		p.since[k] = p.seq
		if ok && old.hashes[k] == hash {
			p.since[k] = old.since[k]
		}
	}
	l.published[gateway] = p
	return p, true
}

// retire forgets a gateway, unless it is connected. drop runs before any new stream of
// the gateway can ask for something: what drop takes away, it cannot take from a stream.
func (l *ledger) retire(gateway string, drop func(gateway string)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.streams {
		if s.gateway == gateway {
			return false
		}
	}
	delete(l.published, gateway)
	drop(gateway)
	return true
}

// open starts the account of a verified stream.
func (l *ledger) open(id int64, gateway string, b build) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[id] = &stream{gateway: gateway, build: b, taken: map[key]uint64{}, sent: map[string]response{}, refused: map[string]string{}}
}

func (l *ledger) close(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, id)
	l.move()
}

// send records a response before it goes out; seq is its snapshot's.
func (l *ledger) send(id int64, seq uint64, r *discovery.DeltaDiscoveryResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.streams[id]
	if !ok {
		return
	}
	out := response{seq: seq}
	for _, res := range r.GetResources() {
		out.updated = append(out.updated, key{r.GetTypeUrl(), res.GetName()})
	}
	for _, name := range r.GetRemovedResources() {
		out.removed = append(out.removed, key{r.GetTypeUrl(), name})
	}
	s.sent[r.GetNonce()] = out
}

// receive books what a request says that the gateway has. It returns the gateway's
// words if it refused a response.
func (l *ledger) receive(id int64, r *discovery.DeltaDiscoveryRequest) (refusal string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.streams[id]
	if !ok {
		return "", nil
	}
	if len(s.sent) > maxUnacknowledged {
		return "", fmt.Errorf("%d responses are not acknowledged", len(s.sent))
	}
	// After a reconnect Envoy says what it still has, and is not sent it again.
	for name, version := range r.GetInitialResourceVersions() {
		k := key{r.GetTypeUrl(), name}
		s.taken[k] = 0
		if p := l.published[s.gateway]; p != nil && p.version(k) == version {
			s.taken[k] = p.seq
		}
	}
	acked, ok := s.sent[r.GetResponseNonce()]
	if !ok {
		return "", nil
	}
	delete(s.sent, r.GetResponseNonce())
	defer l.move()
	if r.GetErrorDetail() != nil {
		if r.GetTypeUrl() == resource.ExtensionConfigType && !s.build.wasm {
			return "", nil // as the build's problem says
		}
		refusal = refusalText(r)
		s.refused[r.GetTypeUrl()] = refusal
		return refusal, nil
	}
	delete(s.refused, r.GetTypeUrl())
	for _, k := range acked.updated {
		s.taken[k] = acked.seq
	}
	for _, k := range acked.removed {
		delete(s.taken, k)
	}
	return "", nil
}

// refusals are what connected gateways cannot do, or refused last and have not taken since.
func (l *ledger) refusals() []routing.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := routing.Problems{}
	for _, s := range l.streams {
		if s.build.problem != "" {
			found.Add("", s.build.problem, s.gateway)
		}
		for typeURL, words := range s.refused {
			found.Add("", fmt.Sprintf("refused its %s, and keeps what it has: %s", shortType(typeURL), words), s.gateway)
		}
	}
	return found.Sorted()
}

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

// move wakes those who wait in settled; l.mu is held.
func (l *ledger) move() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// settled returns when every gateway that is connected has acknowledged what was
// published before the call.
func (l *ledger) settled(ctx context.Context) error {
	l.mu.Lock()
	goal := maps.Clone(l.published)
	l.mu.Unlock()
	for {
		l.mu.Lock()
		behind, err := l.behind(goal)
		moved := l.moved
		l.mu.Unlock()
		if err != nil || len(behind) == 0 {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the gateways %s to take over their configuration: %w", strings.Join(behind, ", "), context.Cause(ctx))
		}
	}
}

// behind returns the connected gateways that lack something of the goal; l.mu is held.
func (l *ledger) behind(goal map[string]*publication) ([]string, error) {
	var names []string
	for _, s := range l.streams {
		p := goal[s.gateway]
		if p == nil || s.has(p) {
			continue
		}
		for typeURL, words := range s.refused {
			return nil, fmt.Errorf("gateway %s refused its %s: %s", s.gateway, shortType(typeURL), words)
		}
		names = append(names, s.gateway)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (s *stream) has(p *publication) bool {
	for k, seq := range p.since {
		if k.typeURL == resource.ExtensionConfigType && !s.build.wasm {
			continue // it never takes a filter, and sends requests nowhere by one
		}
		if taken, ok := s.taken[k]; !ok || taken < seq {
			return false
		}
	}
	for k, taken := range s.taken {
		// Envoy drops routes and endpoints by itself with the listener or cluster that
		// wanted them. What came after p may well be absent from it.
		if _, wanted := p.since[k]; !wanted && isRoot(k.typeURL) && taken <= p.seq {
			return false
		}
	}
	return true
}

// isRoot says whether Envoy takes all resources of a type, not only those it names.
func isRoot(typeURL string) bool {
	return typeURL == resource.ClusterType || typeURL == resource.ListenerType
}

func shortType(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
