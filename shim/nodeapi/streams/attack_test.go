package streams

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
)

// A daemon that changes its targets again and again, and answers nothing, has no more work done than with one list.
func TestAttackOfTheDaemonByTargets(t *testing.T) {
	var made atomic.Int64
	goOn := make(chan struct{})
	s := NewShim("a", HostNetwork, func(context.Context) (Ends, error) {
		made.Add(1)
		<-goOn
		return Ends{}, errors.New("no network")
	})
	here, _ := packetPair(t)
	c := newConversation(here)
	s.daemon = c
	for list := range 3 {
		var all []netip.AddrPort
		for port := range TargetsLimit {
			all = append(all, netip.AddrPortFrom(netip.MustParseAddr("10.0.0.3"), uint16(1+list*TargetsLimit+port)))
		}
		s.hear(c, message{Targets: text(all)})
	}
	close(goOn)
	c.work.Wait()
	s.joined.Wait()
	// Each of them may have had one made ready, besides.
	before := made.Load()
	if before > 2*TargetsLimit+1 {
		t.Errorf("%d connections for %d targets", before, TargetsLimit)
	}
	s.hear(c, message{Targets: text([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:5432")})})
	c.work.Wait()
	s.joined.Wait()
	if made.Load() == before {
		t.Error("no place has become free")
	}
}
