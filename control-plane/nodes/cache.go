package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// entriesMost is how many entries of one answer are taken: a node keeps 4096 objects, and some volumes.
	entriesMost = 1 << 16
	// bytesMost is how long an answer may be: as many entries as a node has, with the longest references.
	bytesMost = 64 << 20
	// partsMost is how many parts of an answer wait to be taken.
	partsMost = 1024
)

// errOlder is for a node whose daemon knows no calls.
var errOlder = &platform.Refusal{Status: http.StatusNotImplemented, Reason: "CacheVerbUnknown",
	Message: "the node's daemon is older than the control plane"}

// Cache has a node do something with what it keeps, and returns its answer when that is whole. A refusal of the node is
// a *platform.Refusal.
func (s *Server) Cache(ctx context.Context, node string, call *nodeapi.CacheCall) ([]*nodeapi.CacheEntry, error) {
	call = proto.CloneOf(call)
	call.Id = rand.Int64()
	parts := make(chan *nodeapi.CacheAnswer, partsMost)
	s.mu.Lock()
	of := s.joined[node]
	if len(of) == 0 {
		s.mu.Unlock()
		return nil, fmt.Errorf("node %s: %w", node, ErrNotConnected)
	}
	st := of[len(of)-1]
	if !st.register.GetCacheCalls() {
		s.mu.Unlock()
		return nil, errOlder
	}
	st.calls[call.GetId()] = parts
	// A stream that is too slow is cut off, and its end is the answer.
	_ = st.send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_CacheCall{CacheCall: call}})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(st.calls, call.GetId())
		s.mu.Unlock()
	}()
	var all []*nodeapi.CacheEntry
	size := 0
	for {
		select {
		case part := <-parts:
			all = append(all, part.GetEntries()...)
			size += proto.Size(part)
			switch r := part.GetRefused(); {
			case size > bytesMost:
				return nil, fmt.Errorf("node %s: its answer has more than %d MiB", node, bytesMost>>20)
			case r != nil:
				return all, &platform.Refusal{Status: int(r.GetStatus()), Reason: r.GetReason(), Message: r.GetMessage(), Field: r.GetField()}
			case !part.GetMore() || len(all) > entriesMost:
				return all, nil
			}
		case <-st.gone:
			return nil, fmt.Errorf("node %s: %w", node, ErrNotConnected)
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the answer of node %s: %w", node, context.Cause(ctx))
		}
	}
}

// answered takes a part of a daemon's answer.
func (s *Server) answered(st *stream, m *nodeapi.CacheAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case st.calls[m.GetId()] <- m:
	default: // nobody waits, or the daemon sends too many parts
	}
}
