package uplink_test

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/wiretest"
)

// What a newer control plane says is done as far as it is known, and the rest is passed over.
func TestANewerControlPlane(t *testing.T) {
	r := newRig(t)
	s := r.run()
	for _, m := range []*nodeapi.ControlMessage{
		{}, // of a kind that is not known
		{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: []*nodeapi.Function{{Name: "default/fire"}}}}},
		{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{{Id: "one", Phase: 99}}}}},
		{Kind: &nodeapi.ControlMessage_Triggers{Triggers: &nodeapi.Triggers{Triggers: []*nodeapi.Trigger{{Function: "default/fire"}}}}},
		{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{Request: "a"}}},
	} {
		s.say(wiretest.Newer(m))
	}
	for _, want := range []string{"functions 1", "instances 1", "triggers 1", "expect a"} {
		select {
		case got := <-r.handler.calls:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s was not handled", want)
		}
	}
	instance := make(chan string, 1)
	go func() {
		bound, err := r.Activate(t.Context(), activate("a"))
		if err != nil {
			t.Error(err)
		}
		instance <- bound.GetInstance()
	}()
	s.want(asks("a"))
	s.say(wiretest.Newer(binds("a", "one")))
	if got := <-instance; got != "one" {
		t.Errorf("bound to %q", got)
	}
}
