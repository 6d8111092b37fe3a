package uplink_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

func TestMessagesAreHandledInOrder(t *testing.T) {
	r := newRig(t)
	s := r.run()
	say := []*nodeapi.ControlMessage{
		{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: []*nodeapi.Function{{}}}}},
		{Kind: &nodeapi.ControlMessage_Start{Start: &nodeapi.StartInstance{Id: "one"}}},
		{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{{}, {}}}}},
		{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{Request: "a"}}},
		{Kind: &nodeapi.ControlMessage_Neighbours{Neighbours: &nodeapi.Neighbours{Neighbours: []*nodeapi.Neighbour{{}}}}},
		{}, // a newer control plane's: not for this node
		{Kind: &nodeapi.ControlMessage_Stop{Stop: &nodeapi.StopInstance{Id: "one"}}},
		{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{}}},
	}
	for _, m := range say {
		s.say(m)
	}
	for _, want := range []string{"functions 1", "start one", "instances 2", "expect a", "neighbours 1", "stop one", "functions 0"} {
		select {
		case got := <-r.handler.calls:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s was not handled", want)
		}
	}
}

func TestReportsAreSentInOrder(t *testing.T) {
	r := newRig(t)
	s := r.run()
	var want []*nodeapi.NodeMessage
	for i := range 50 {
		st, e := status(strconv.Itoa(i), nodeapi.Phase_PHASE_STARTING), event("Event"+strconv.Itoa(i))
		r.Report(st)
		r.Event(e)
		want = append(want, reports(st), tells(e))
	}
	for _, m := range want {
		s.want(m)
	}
}

// A stream that cannot be used is given up, and the next one tried.
func TestRegistrationThatCannotBeSent(t *testing.T) {
	r := newRig(t)
	r.version = "\xff"
	r.start()
	for range 2 {
		r.opened()
	}
}

// What was reported while the control plane was away is in the registration, with what ended for a
// reason: a job's result is told once, and nobody asks again. Only events follow.
func TestReportsWhileAway(t *testing.T) {
	r := newRig(t)
	r.Report(status("one", nodeapi.Phase_PHASE_STARTING))
	r.Event(event("First"))
	r.Report(status("one", nodeapi.Phase_PHASE_READY))
	failed := status("two", nodeapi.Phase_PHASE_FAILED)
	failed.Reason, failed.Message, failed.Field = "ReadyTimeout", "it was not ready", "headstart.dev/ready-timeout"
	r.Report(failed)
	r.Report(status("three", nodeapi.Phase_PHASE_STOPPED))
	r.Event(event("Second"))
	r.start()
	s := r.registered(1, failed)
	s.want(tells(event("First")))
	s.want(tells(event("Second")))
}

// Of what was measured the newest is told, once.
func TestMeasurements(t *testing.T) {
	r := newRig(t)
	for i := range 100 {
		r.RoundTrips(&nodeapi.RoundTrips{Measured: make([]*nodeapi.RoundTrip, i)})
		r.Signals(&nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: "default/fire", Eps: float64(i)}}})
	}
	s := r.run()
	var measured, signals int
	for measured+signals < 2 {
		switch m := s.recv(); {
		case len(m.GetRoundTrips().GetMeasured()) == 99:
			measured++
		case m.GetSignals().GetFunctions()[0].GetEps() == 99:
			signals++
		}
	}
	r.Signals(&nodeapi.Signals{})
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Signals{Signals: &nodeapi.Signals{}}})
}

// What gateways refuse is told as it is now: on each connection, as control planes forget it with
// the connection, and that it is over, too.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	refused := func(words ...string) *nodeapi.GatewayRefusals {
		m := &nodeapi.GatewayRefusals{}
		for _, w := range words {
			m.Refusals = append(m.Refusals, &nodeapi.GatewayRefusal{Words: w})
		}
		return m
	}
	wants := func(s *stream, words ...string) {
		t.Helper()
		s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_GatewayRefusals{GatewayRefusals: refused(words...)}})
	}
	r.Refused(refused("of before"))
	r.Refused(refused("no room"))
	s := r.run()
	wants(s, "no room")
	s.end <- errors.New("away")
	s = r.registered(2)
	wants(s, "no room")
	r.Refused(refused("no room", "malformed"))
	wants(s, "no room", "malformed")
	r.Refused(refused())
	wants(s)
}

// Stores and destinations that cannot be used, and what the node keeps, are told in the same way.
func TestStoreProblems(t *testing.T) {
	r := newRig(t)
	one := &nodeapi.StoreProblems{Problems: []*nodeapi.StoreProblem{{Store: "edge", Message: "no secret"}}}
	r.StoreProblems(one)
	s := r.run()
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_StoreProblems{StoreProblems: one}})
	s.end <- errors.New("away")
	s = r.registered(2)
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_StoreProblems{StoreProblems: one}})
	r.StoreProblems(&nodeapi.StoreProblems{})
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_StoreProblems{StoreProblems: &nodeapi.StoreProblems{}}})
	away := &nodeapi.DestinationProblems{Problems: []*nodeapi.DestinationProblem{{Destination: "orders", Message: "refused"}}}
	r.DestinationProblems(away)
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_DestinationProblems{DestinationProblems: away}})
	kept := &nodeapi.Keeps{Room: 1 << 30, Volumes: []*nodeapi.KeptVolume{{Prefix: "s3://models/llama/"}}}
	r.Keeps(kept)
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Keeps{Keeps: kept}})
}

// Nobody waits for a control plane that takes nothing.
func TestReportsNeverBlock(t *testing.T) {
	r := newRig(t)
	for i := range 5000 {
		r.Report(status(strconv.Itoa(i), nodeapi.Phase_PHASE_READY))
		r.Event(event("Event"))
		r.Hold("default/fire", 1)
	}
}

// The load is told as it is when it is sent, however often it changed before.
func TestLoad(t *testing.T) {
	r := newRig(t)
	r.Hold("default/fire", 1)
	r.start()
	s := r.opened()
	s.recv()
	s.wantLoad(map[string]int32{"default/fire": 1})
	for range 99 {
		r.Hold("default/fire", 1)
		r.Hold("default/water", 1)
	}
	s.wantLoad(map[string]int32{"default/fire": 100, "default/water": 99})
	for range 99 {
		r.Hold("default/fire", -1)
		r.Hold("default/water", -1)
	}
	s.wantLoad(map[string]int32{"default/fire": 1})
	s.end <- nil
	s = r.opened()
	s.recv()
	s.wantLoad(map[string]int32{"default/fire": 1})
	r.Hold("default/fire", -1)
	s.wantLoad(nil)
}

// A request is told however short it is: the control plane may have bound it to nothing, and would take its function for idle.
func TestShortRequestsAreLoad(t *testing.T) {
	r := newRig(t)
	r.start()
	s := r.opened()
	s.recv()
	s.wantLoad(nil)
	for range 3 {
		r.Hold("default/fire", 1)
		r.Hold("default/fire", -1)
		s.wantLoad(map[string]int32{"default/fire": 1})
		s.wantLoad(nil)
	}
}

// wantLoad reads on until the load is as wanted.
func (s *stream) wantLoad(want map[string]int32) {
	s.t.Helper()
	for {
		m := s.recv().GetLoad()
		if m == nil {
			s.t.Fatal("something else than a load came")
		}
		if diff := cmp.Diff(want, m.GetInFlight()); diff == "" {
			return
		}
	}
}

// Run ends with its context, whatever the control plane does.
func TestRunEnds(t *testing.T) {
	for name, test := range map[string]func(*rig){
		"in silence": func(r *rig) { r.run() },
		"while the control plane takes nothing": func(r *rig) {
			r.run()
			for range 5000 { // more than the connection holds
				r.Event(&nodeapi.Event{Message: string(make([]byte, 1024))})
			}
		},
		"while it reconnects": func(r *rig) { r.run().end <- errors.New("away") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test(r)
			r.stop()
			select {
			case <-r.stopped:
			case <-time.After(patience):
				t.Fatal("it does not")
			}
		})
	}
}

// away is a control plane that tells of each attempt to reach it; streams last as long
// as lasts says, by the number of the attempt.
type away struct {
	tried    chan time.Time
	attempts int
	lasts    func(attempt int) time.Duration
}

func (a *away) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("away")
}

func (a *away) Close() error { return nil }

func (a *away) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	a.tried <- time.Now()
	a.attempts++
	time.Sleep(a.lasts(a.attempts))
	return nil, errors.New("away")
}

func TestReconnectsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempts = 50
		cp := &away{tried: make(chan time.Time), lasts: func(attempt int) time.Duration {
			if attempt == attempts {
				return time.Minute
			}
			return 0
		}}
		u := uplink.New(only(func() (uplink.Conn, error) { return cp, nil }), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.Run(ctx, nil, nil)
		}()
		began := <-cp.tried
		last, longest := began, time.Duration(0)
		for range attempts - 1 {
			at := <-cp.tried
			longest, last = max(longest, at.Sub(last)), at
		}
		if longest < 500*time.Millisecond || longest > 1500*time.Millisecond {
			t.Errorf("the longest pause is %s, want about a second", longest)
		}
		if took := last.Sub(began); took < 20*time.Second {
			t.Errorf("%d attempts within %s", attempts, took)
		}
		// After a stream that lasted, the next is opened soon.
		if pause := (<-cp.tried).Sub(last) - time.Minute; pause > 100*time.Millisecond {
			t.Errorf("the next attempt came %s after a stream that lasted", pause)
		}
		cancel()
		<-done
	})
}

// A function that gateways have requests of is not idle, though the daemon has none.
func TestLoadThatPassesTheDaemonBy(t *testing.T) {
	r := newRig(t)
	r.Seen("default/fire", true)
	r.start()
	s := r.opened()
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: registration(1)}})
	for _, step := range []struct {
		do   func()
		want map[string]int32
	}{
		{func() {}, map[string]int32{"default/fire": 1}},
		{func() { r.Hold("default/fire", 2) }, map[string]int32{"default/fire": 3}},
		{func() { r.Seen("default/water", true) }, map[string]int32{"default/fire": 3, "default/water": 1}},
		{func() { r.Seen("default/fire", false) }, map[string]int32{"default/fire": 2, "default/water": 1}},
		{func() { r.Hold("default/fire", -2) }, map[string]int32{"default/water": 1}},
		{func() { r.Seen("default/water", true); r.Seen("default/fire", false); r.Seen("default/water", false) }, nil},
	} {
		step.do()
		s.wantLoad(step.want)
	}
}
