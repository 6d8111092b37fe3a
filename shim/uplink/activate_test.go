package uplink_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// answered is what Activate returned.
type answered struct {
	bound *nodeapi.Bound
	err   error
}

// activating asks in the background.
func (r *rig) activating(ctx context.Context, request string) chan answered {
	answer := make(chan answered, 1)
	go func() {
		b, err := r.Activate(ctx, activate(request))
		answer <- answered{b, err}
	}()
	return answer
}

func TestActivationIsBound(t *testing.T) {
	r := newRig(t)
	s := r.run()
	a, b := r.activating(t.Context(), "a"), r.activating(t.Context(), "b")
	got := []string{s.recv().GetActivate().GetRequest(), s.recv().GetActivate().GetRequest()}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("asked for %q", got)
	}
	s.say(binds("nobody", "x"))
	want := &nodeapi.Bound{Request: "b", Instance: "two", Node: "cloud", PeerAddress: "192.0.2.2:7000", Cold: true}
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: want}})
	s.say(binds("a", "one"))
	if got := <-b; got.err != nil || cmp.Diff(want, got.bound, protocmp.Transform()) != "" {
		t.Errorf("b: %v, %v", got.bound, got.err)
	}
	if got := <-a; got.err != nil || got.bound.GetInstance() != "one" {
		t.Errorf("a: %v, %v", got.bound, got.err)
	}
}

func TestActivationIsRefused(t *testing.T) {
	r := newRig(t)
	s := r.run()
	for i, test := range []struct {
		refused *nodeapi.Refused
		want    problem.Problem
	}{
		{&nodeapi.Refused{Status: 503, Reason: "NoNode", Message: "no node is connected", Field: "spec.template.spec.nodeSelector"},
			problem.Problem{Type: "https://headstart.dev/errors#NoNode", Title: "NoNode", Status: 503, Detail: "no node is connected", Field: "spec.template.spec.nodeSelector"}},
		// An answer needs a status that is an error.
		{&nodeapi.Refused{Reason: "Odd"}, problem.Problem{Type: "https://headstart.dev/errors#Odd", Title: "Odd", Status: 502}},
		{&nodeapi.Refused{Reason: "Odd", Status: 200}, problem.Problem{Type: "https://headstart.dev/errors#Odd", Title: "Odd", Status: 502}},
		{&nodeapi.Refused{Reason: "Odd", Status: 1000}, problem.Problem{Type: "https://headstart.dev/errors#Odd", Title: "Odd", Status: 502}},
	} {
		request := strconv.Itoa(i)
		answer := r.activating(t.Context(), request)
		s.want(asks(request))
		test.refused.Request = request
		s.say(refuses(test.refused))
		got := <-answer
		var p *problem.Problem
		if !errors.As(got.err, &p) {
			t.Fatal(got.err)
		}
		if diff := cmp.Diff(test.want, *p); diff != "" {
			t.Errorf("problem (-want +got):\n%s", diff)
		}
	}
}

// A question is asked once per stream, and answered once.
func TestActivationSurvivesReconnects(t *testing.T) {
	r := newRig(t)
	s := r.run()
	answer := r.activating(t.Context(), "a")
	s.want(asks("a"))
	for n := 2; n < 5; n++ {
		s.end <- errors.New("the control plane restarts")
		s = r.registered(n)
		s.want(asks("a"))
	}
	s.say(binds("a", "one"))
	s.say(binds("a", "two"))
	if got := <-answer; got.err != nil || got.bound.GetInstance() != "one" {
		t.Errorf("%v, %v", got.bound, got.err)
	}
	r.Event(event("Next"))
	s.want(tells(event("Next")))
	s.end <- nil
	s = r.registered(5)
	r.Event(event("Last"))
	s.want(tells(event("Last")))
	// The id is free for a request that is sent again.
	again := r.activating(t.Context(), "a")
	s.want(asks("a"))
	s.say(binds("a", "three"))
	if got := <-again; got.err != nil || got.bound.GetInstance() != "three" {
		t.Errorf("%v, %v", got.bound, got.err)
	}
}

// A question that nobody waits for any more is not asked: it would start an instance.
func TestActivationWithoutControlPlane(t *testing.T) {
	r := newRig(t)
	timedOut, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := r.Activate(timedOut, activate("slow"))
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "ActivationTimeout" || p.Status != 504 {
		t.Errorf("%v, want ActivationTimeout", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Activate(cancelled, activate("gone")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the cancellation", err)
	}
	waits := r.activating(t.Context(), "waits")
	s := r.run()
	s.want(asks("waits"))
	s.say(binds("waits", "one"))
	if got := <-waits; got.err != nil {
		t.Error(got.err)
	}
	r.Event(event("Next"))
	s.want(tells(event("Next")))
}

func TestActivationTwice(t *testing.T) {
	r := newRig(t)
	s := r.run()
	first := r.activating(t.Context(), "a")
	s.want(asks("a"))
	_, err := r.Activate(t.Context(), activate("a"))
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "DuplicateRequest" || p.Status != 409 || p.Field != "x-headstart-request" {
		t.Errorf("%v, want DuplicateRequest", err)
	}
	s.say(binds("a", "one"))
	if got := <-first; got.err != nil {
		t.Error(got.err)
	}
}

// A question that comes of a report is heard after it: an instance that has failed is
// not the answer.
func TestActivationFollowsTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Event(event("First"))
		answer := r.activating(t.Context(), "a")
		synctest.Wait() // it is asked
		s := r.run()
		s.want(tells(event("First")))
		s.want(asks("a"))
		s.say(binds("a", "one"))
		<-answer
	})
}

// What a client put in its headers does not end the node's stream.
func TestActivationThatCannotBeSent(t *testing.T) {
	r := newRig(t)
	s := r.run()
	hostile := activate("a")
	hostile.Input = "s3://bucket/\xff"
	_, err := r.Activate(t.Context(), hostile)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "InputReferenceMalformed" || p.Status != 400 {
		t.Errorf("%v, want InputReferenceMalformed", err)
	}
	e := event("Hostile")
	e.Message = "\xff"
	r.Event(e)
	r.Event(event("Next"))
	s.want(tells(event("Next")))
}

// Answers, deadlines and reconnects may come at the same time.
func TestActivationsAtOnce(t *testing.T) {
	const count = 200
	r := newRig(t)
	s := r.run()
	var all []chan answered
	for i := range count {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if i%3 == 0 {
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		}
		defer cancel()
		all = append(all, r.activating(ctx, strconv.Itoa(i)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n, heard := 2, 0; ; heard++ {
			if heard == count/2 {
				s.end <- nil
				s = r.registered(n)
			}
			m := s.recv()
			if m.GetEvent() != nil {
				return
			}
			s.say(binds(m.GetActivate().GetRequest(), "one"))
		}
	}()
	for i, answer := range all {
		got := <-answer
		if got.err != nil && i%3 != 0 || got.err == nil && got.bound.GetRequest() != strconv.Itoa(i) {
			t.Errorf("%d: %v, %v", i, got.bound, got.err)
		}
	}
	r.Event(event("Last"))
	<-done
}
