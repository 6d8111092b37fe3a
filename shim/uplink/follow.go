package uplink

import (
	"bytes"
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// heard acts on a control plane's word. What the node is to know it takes from the followed
// one; what another one says is kept until that is followed. Requests and instances have keys,
// and are the same whoever names them.
func (s *stream) heard(m *nodeapi.ControlMessage) {
	u := s.u
	u.handling.Lock()
	defer u.handling.Unlock()
	switch k := m.GetKind().(type) {
	case *nodeapi.ControlMessage_Start:
		u.handler.Start(k.Start)
	case *nodeapi.ControlMessage_Stop:
		u.handler.Stop(k.Stop)
	case *nodeapi.ControlMessage_Withdraw:
		u.handler.Withdraw(k.Withdraw)
	case *nodeapi.ControlMessage_Expect:
		u.handler.Expect(k.Expect)
	case *nodeapi.ControlMessage_Confirm:
		u.handler.Confirm(k.Confirm)
	case *nodeapi.ControlMessage_CacheCall:
		if s.listens() {
			u.handler.CacheCall(k.CacheCall, s.answer)
		}
	case *nodeapi.ControlMessage_Bound:
		u.settle(k.Bound.GetRequest(), answer{bound: k.Bound})
	case *nodeapi.ControlMessage_Refused:
		u.refused(s, k.Refused)
	case *nodeapi.ControlMessage_InCharge:
		s.takes(k.InCharge.GetHeld())
	case *nodeapi.ControlMessage_Allowances:
		if u.follows(s) {
			u.handler.Allow(k.Allowances)
		}
	case *nodeapi.ControlMessage_Keys:
		s.said.keys = k.Keys
	default:
		news, whole := s.said.hear(m)
		if !whole {
			return
		}
		if news.functions != nil {
			for _, f := range news.functions.GetFunctions() {
				if f.GetGeneration() != 0 { // nobody has this one yet
					f.Generation = 0 // a control plane's own count, of which a node makes no use
				}
			}
			for _, other := range u.others(s) {
				news.functions.Functions = shared(news.functions.GetFunctions(), other.said.functions.GetFunctions())
			}
		}
		if u.isFollowed(s) {
			news.tell(u.handler)
			return
		}
		// They hear the same of the cluster: the followed one has it to say, too.
		u.doubt()
	}
	u.mu.Lock()
	came := !s.up
	s.up = true
	u.mu.Unlock()
	if came || m.GetKeys() != nil {
		u.tellKeys()
	}
	u.choose()
}

// others are the other control planes' streams. The caller holds handling.
func (u *Uplink) others(than *stream) []*stream {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(u.streams), func(s *stream) bool { return s == than })
}

// tellKeys says which keys count: those of all control planes that are there, as any of them may have
// bound a request; none while one of them has told none, as its bindings have no capabilities. While
// no control plane is there, the keys of before count. The caller holds handling.
func (u *Uplink) tellKeys() {
	u.mu.Lock()
	var all [][]byte
	there, bare := false, false
	for _, s := range u.streams {
		if !s.up {
			continue
		}
		there, bare = true, bare || len(s.said.keys.GetKeys()) == 0
		all = append(all, s.said.keys.GetKeys()...)
	}
	u.mu.Unlock()
	if bare {
		all = nil
	}
	if there {
		slices.SortFunc(all, bytes.Compare)
		u.handler.Keys(&nodeapi.Keys{Keys: slices.CompactFunc(all, bytes.Equal)})
	}
}

// takes says whether the control plane is in charge.
func (s *stream) takes(charge bool) {
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	if s.charge = 0; charge {
		s.u.claims++
		s.charge = s.u.claims
	}
}

func (u *Uplink) isFollowed(s *stream) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.followed == s
}

// choose follows the control plane that was the last to say that it is in charge or, while none
// does, the one that is followed already, or the first that is there. One that hangs is followed
// only if all do. The caller holds handling.
func (u *Uplink) choose() {
	u.mu.Lock()
	var best *stream
	for _, s := range u.streams {
		if s.up && (best == nil || u.isBetter(s, best)) {
			best = s
		}
	}
	changed := best != u.followed
	if changed {
		u.endTerm()
		u.followed = best
		u.term, u.endTerm = context.WithCancel(context.Background())
	}
	if changed && best != nil {
		u.askFollowed(best)
	}
	u.mu.Unlock()
	if changed && best != nil {
		u.log.Info("following a control plane", "address", best.address)
		best.said.tell(u.handler)
	}
}

// isBetter tells whether s is to be followed rather than other; the caller holds mu.
func (u *Uplink) isBetter(s, other *stream) bool {
	switch {
	case u.isDoubtful(s) != u.isDoubtful(other):
		return u.isDoubtful(other)
	case s.charge != other.charge:
		return s.charge > other.charge
	}
	return s == u.followed
}

// Followed is a connection to the control plane that is followed; calls wait until there is one.
// What is open on it ends when another one is followed.
func (u *Uplink) Followed() grpc.ClientConnInterface { return followed{u} }

type followed struct{ u *Uplink }

// current returns the connection, and a context that ends when another one is followed.
func (f followed) current(ctx context.Context) (Conn, context.Context, error) {
	for {
		f.u.mu.Lock()
		now, term := f.u.followed, f.u.term
		f.u.mu.Unlock()
		if now != nil {
			return now.conn, term, nil
		}
		select {
		case <-term.Done():
		case <-ctx.Done():
			return nil, nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (f followed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, term, err := f.current(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (f followed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, term, err := f.current(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(term, cancel)
	release := func() { forget(); cancel() }
	s, err := conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		release()
		return nil, err
	}
	return &termed{ClientStream: s, release: release}, nil
}

// termed is a stream of a term, which it need not wait for when it has ended before.
type termed struct {
	grpc.ClientStream
	release func()
}

// RecvMsg implements grpc.ClientStream: its error is the stream's end.
func (t *termed) RecvMsg(m any) error {
	err := t.ClientStream.RecvMsg(m)
	if err != nil {
		t.release()
	}
	return err
}

// follows tells whether the stream is of the control plane that is followed.
func (u *Uplink) follows(s *stream) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.followed == s
}
