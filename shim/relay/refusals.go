package relay

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// maxRefusalBytes is the part of a gateway's words that is kept and logged.
	maxRefusalBytes = 512
	// maxRefusedNames is how many names of resources are told: a gateway's words say which of
	// more it means.
	maxRefusedNames = 3
	// maxRefusals is how many refusals are told that differ.
	maxRefusals = 20
	// refusalsApart is the shortest time between two tellings: a gateway refuses as often as it
	// likes.
	refusalsApart = time.Second
)

// refusals are what gateways have refused and not taken since, by stream and type: as many as
// streams may be open, a few times.
type refusals struct {
	changed chan struct{} // holds a token

	mu  sync.Mutex
	now map[refusedBy]refusal
}

type refusedBy struct {
	stream  *guarded
	typeURL string
}

type refusal struct {
	names []string
	words string
}

func newRefusals() *refusals {
	return &refusals{changed: make(chan struct{}, 1), now: map[refusedBy]refusal{}}
}

func (rs *refusals) add(by refusedBy, r refusal) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.now[by] = r
	rs.change()
}

// taken says that the gateway has taken something of the type.
func (rs *refusals) taken(by refusedBy) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, refused := rs.now[by]; refused {
		delete(rs.now, by)
		rs.change()
	}
}

// gone says that a stream has ended: its gateway has nothing to keep any more, or says so again.
func (rs *refusals) gone(s *guarded) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	before := len(rs.now)
	maps.DeleteFunc(rs.now, func(by refusedBy, _ refusal) bool { return by.stream == s })
	if len(rs.now) < before {
		rs.change()
	}
}

// change leaves a token; rs.mu is held.
func (rs *refusals) change() { signal(rs.changed) }

// cut leaves no half character at the end.
func cut(words string) string {
	return strings.ToValidUTF8(words[:min(len(words), maxRefusalBytes)], "")
}

// all is each refusal once: several gateways of a node have the same, mostly.
func (rs *refusals) all() *nodeapi.GatewayRefusals {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	differ := map[string]*nodeapi.GatewayRefusal{}
	for by, r := range rs.now {
		differ[strings.Join(append([]string{by.typeURL, r.words}, r.names...), "\x00")] = &nodeapi.GatewayRefusal{TypeUrl: by.typeURL, Resources: r.names, Words: r.words}
	}
	m := &nodeapi.GatewayRefusals{}
	for _, key := range slices.Sorted(maps.Keys(differ)) {
		if len(m.Refusals) == maxRefusals {
			m.More = int32(len(differ) - maxRefusals)
			break
		}
		m.Refusals = append(m.Refusals, differ[key])
	}
	return m
}

// tellRefusals tells what gateways refuse at each change, until ctx ends.
func (r *Relay) tellRefusals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.refusals.changed:
		}
		r.cfg.Refused(r.refusals.all())
		select {
		case <-ctx.Done():
			return
		case <-time.After(refusalsApart):
		}
	}
}
