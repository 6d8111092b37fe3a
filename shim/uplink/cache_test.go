package uplink_test

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A control plane that asks and does not listen fills no memory of the node's.
func TestAttackOfTheControlPlaneByCallsWithoutEnd(t *testing.T) {
	r := newRig(t)
	s := r.run()
	const calls = 6000
	for id := range calls {
		call := &nodeapi.CacheCall{Id: int64(id), Verb: nodeapi.CacheVerb_CACHE_VERB_LIST}
		if err := s.Send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_CacheCall{CacheCall: call}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Confirm{Confirm: &nodeapi.Confirm{Id: 1}}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.handler.calls:
	case <-time.After(patience):
		t.Fatal("the node does not take messages any more")
	}
	if done := r.handler.cacheCalls.Load(); done == 0 || done == calls {
		t.Errorf("%d calls were done for one that takes no answers", done)
	}
}
