package uplink

import (
	"context"
	"sync"
	"time"

	health "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// doubtAfter is how long an answer may take before it is asked whether the followed control
	// plane hangs: longer than a cluster takes, mostly, to have a pod's node.
	doubtAfter = time.Second
	// answersWithin is how long a control plane has to say that it is there, before it is asked a
	// second time: many round trips.
	answersWithin = time.Second
	// answersAgainWithin is how long it has then for either answer, before another one is
	// followed. One that is merely slow would only have more to do by that: a node that comes back
	// is told all anew. Both together are less than a request waits for the news of its instance
	// (shim/sandboxes), which may be the first that this node has of a control plane's hanging.
	answersAgainWithin = time.Second / 2
	// asksApart is how long one that has answered is not asked again: one that is slow has many
	// nodes in doubt, at each request that waits.
	asksApart = time.Second / 5
	// catchesUp is how long one that has hung has to hear and tell what it has missed, until it is
	// followed again.
	catchesUp = time.Second
)

// doubt has all control planes asked whether they are there, since the followed one may hang. Its
// connection's keepalive would notice, too, after 10 to 20 s, and what waits for its word does
// not have that much time. So those are asked, at once, that somebody waits for, and nobody else.
func (u *Uplink) doubt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.streams {
		if s.up {
			signal(s.doubted)
		}
	}
}

// resolve finds out whether the control plane hangs, each time that it is in doubt, until ctx
// ends.
func (s *stream) resolve(ctx context.Context) error {
	for {
		select {
		case <-s.doubted:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.is(asked)
		if s.hangs(ctx) {
			if err := pause(ctx, catchesUp); err != nil {
				return err
			}
		}
		s.is(sound)
		if err := pause(ctx, asksApart); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hangs asks the control plane, twice if need be, and returns when it answers; true if that took
// so long that another one was to be followed meanwhile.
func (s *stream) hangs(ctx context.Context) bool {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{}, 2)
	ask := func() {
		// Any answer will do, also that it does not know the question; or the connection has ended.
		_, _ = health.NewHealthClient(s.conn).Check(ctx, &health.HealthCheckRequest{})
		answered <- struct{}{}
	}
	asking.Go(ask)
	if comes(answered, answersWithin) {
		return false
	}
	asking.Go(ask)
	if comes(answered, answersAgainWithin) {
		return false
	}
	s.u.log.Warn("a control plane does not answer; another one is followed, if one does", "address", s.address)
	s.is(hanging)
	<-answered
	return true
}

// comes tells whether there is an answer within d. One that is there when this process gets to
// look, late itself, is.
func comes(answered <-chan struct{}, d time.Duration) bool {
	select {
	case <-answered:
		return true
	case <-time.After(d):
	}
	select {
	case <-answered:
		return true
	default:
		return false
	}
}

// state is what is known of whether a control plane hangs.
type state int

const (
	sound   state = iota
	asked         // it has not answered yet
	hanging       // nor in time
)

// is says which, and follows the control plane that is to be followed then.
func (s *stream) is(now state) {
	s.u.handling.Lock()
	defer s.u.handling.Unlock()
	s.u.mu.Lock()
	s.state = now
	s.u.mu.Unlock()
	s.u.choose()
}

// isDoubtful tells whether any control plane that is not doubtful is to be followed rather than
// this one. The followed one is believed until it hangs; who is to take its place has to have
// answered. The caller holds mu.
func (u *Uplink) isDoubtful(s *stream) bool {
	return s.state == hanging || s.state == asked && s != u.followed
}
