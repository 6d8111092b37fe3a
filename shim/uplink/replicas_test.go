package uplink_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// two is an uplink with two control planes.
type two struct {
	*rig
	d             *directory
	first, second *controlPlane
	a, b          *stream // theirs
}

func newTwo(t *testing.T) *two {
	t.Helper()
	first, second := serveControlPlane(t), serveControlPlane(t)
	d := &directory{all: map[string]func() (uplink.Conn, error){"first": first.dial, "second": second.dial}}
	w := &two{rig: newRigOf(t, first, d), d: d, first: first, second: second}
	w.start()
	w.a, w.b = w.comes(first), w.comes(second)
	return w
}

// comes returns a control plane's next stream, after what each begins with.
func (r *rig) comes(cp *controlPlane) *stream {
	r.t.Helper()
	at := *r
	at.cp = cp
	s := at.opened()
	if m := s.recv(); m.GetRegister() == nil {
		r.t.Fatalf("a stream begins with %v", m)
	}
	if m := s.recv(); m.GetLoad() == nil {
		r.t.Fatalf("after the registration came %v", m)
	}
	return s
}

func (s *stream) functions(n int) {
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: make([]*nodeapi.Function, n)}}})
}

func (s *stream) instances(n int) {
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: make([]*nodeapi.InstanceStatus, n)}}})
}

func (s *stream) inCharge(held bool) {
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_InCharge{InCharge: &nodeapi.InCharge{Held: held}}})
}

// expect says something that the handler hears of any control plane.
func (s *stream) expect(request string) {
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{Request: request}}})
}

// hears wants these calls of the handler, and no other between.
func (r *rig) hears(want ...string) {
	r.t.Helper()
	for _, w := range want {
		select {
		case got := <-r.handler.calls:
			if got != w {
				r.t.Fatalf("%s, want %s", got, w)
			}
		case <-time.After(patience):
			r.t.Fatalf("%s was not handled", w)
		}
	}
}

// All control planes hear all that the node says.
func TestAllControlPlanesHearTheSame(t *testing.T) {
	w := newTwo(t)
	w.Event(event("First"))
	w.Hold("default/fire", 1)
	w.RoundTrips(&nodeapi.RoundTrips{Measured: make([]*nodeapi.RoundTrip, 3)})
	for _, s := range []*stream{w.a, w.b} {
		heard := map[string]bool{}
		for len(heard) < 3 {
			switch m := s.recv(); {
			case m.GetEvent() != nil:
				heard["event"] = true
			case m.GetLoad().GetInFlight()["default/fire"] == 1:
				heard["load"] = true
			case len(m.GetRoundTrips().GetMeasured()) == 3:
				heard["round trips"] = true
			}
		}
	}
}

// Of several control planes the node is told what to know by the one that is in charge, by the
// first that is there while none is; and by another one when that has gone.
func TestOneIsFollowed(t *testing.T) {
	w := newTwo(t)
	w.a.functions(1)
	w.hears("functions 1")
	w.b.functions(2) // is not heard yet
	w.b.instances(5)
	w.b.expect("a")
	w.hears("expect a")
	w.b.inCharge(true)
	w.hears("functions 2", "instances 5")
	w.a.functions(3)
	w.a.expect("b")
	w.hears("expect b")
	w.b.functions(4)
	w.hears("functions 4")
	// The other one takes over, in good order.
	w.b.inCharge(false)
	w.b.expect("c")
	w.hears("expect c")
	w.b.functions(5) // nobody else is in charge yet
	w.hears("functions 5")
	w.a.inCharge(true)
	w.hears("functions 3")
	// And goes, without a word.
	w.a.end <- errors.New("killed")
	w.hears("functions 5", "instances 5")
	// It is back, and has to be told first what is going on.
	w.a = w.comes(w.first)
	w.a.functions(6)
	w.a.expect("d")
	w.hears("expect d")
	w.a.inCharge(true)
	w.hears("functions 6")
}

// The question goes to the one that is in charge, and to another one when that has gone.
func TestActivationMovesOn(t *testing.T) {
	w := newTwo(t)
	w.a.functions(0)
	w.hears("functions 0")
	w.b.functions(0)
	w.b.inCharge(true)
	w.hears("functions 0")
	answer := w.activating(t.Context(), "a")
	w.b.want(asks("a"))
	w.b.end <- errors.New("killed")
	w.hears("functions 0")
	w.a.want(asks("a"))
	w.a.say(binds("a", "one"))
	if got := <-answer; got.err != nil || got.bound.GetInstance() != "one" {
		t.Errorf("%v, %v", got.bound, got.err)
	}
}

// One that hangs has three seconds; what another one refuses meanwhile does not count as long
// as there may be a better answer.
func TestActivationIsNotHeldUp(t *testing.T) {
	w := newTwo(t)
	w.a.functions(0)
	w.hears("functions 0")
	w.b.functions(0)
	w.b.expect("b's functions are there")
	w.hears("expect b's functions are there")
	bound, refused := w.activating(t.Context(), "bound"), w.activating(t.Context(), "refused")
	for range 2 {
		if m := w.a.recv(); m.GetActivate() == nil { // and hangs from here on
			t.Fatal(m)
		}
	}
	for range 2 {
		if m := w.b.recv(); m.GetActivate() == nil {
			t.Fatal(m)
		}
	}
	w.b.say(binds("bound", "one"))
	if got := <-bound; got.err != nil || got.bound.GetInstance() != "one" {
		t.Errorf("%v, %v", got.bound, got.err)
	}
	w.b.say(refuses(&nodeapi.Refused{Request: "refused", Status: 503, Reason: "Blind"}))
	w.b.expect("b is heard")
	w.hears("expect b is heard")
	w.a.end <- errors.New("killed") // so that b is followed, and asked again
	w.hears("functions 0")
	w.b.want(asks("refused"))
	w.b.say(refuses(&nodeapi.Refused{Request: "refused", Status: 503, Reason: "NoNode"}))
	if got := <-refused; got.err == nil || !strings.Contains(got.err.Error(), "NoNode") {
		t.Errorf("%v, %v", got.bound, got.err)
	}
}

// What is open with the followed control plane ends when another one is followed.
func TestConnectionFollows(t *testing.T) {
	w := newTwo(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	client := nodeapi.NewControlPlaneClient(w.Followed())
	if _, err := client.Connect(gone); grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("before one is followed: %v", err)
	}
	type opened struct {
		c   nodeapi.ControlPlane_ConnectClient
		err error
	}
	waits := make(chan opened, 1)
	go func() {
		c, err := client.Connect(t.Context())
		waits <- opened{c, err}
	}()
	w.a.functions(0)
	w.hears("functions 0")
	first := <-waits
	if first.err != nil {
		t.Fatal(first.err)
	}
	<-w.first.streams
	w.b.functions(0)
	w.b.inCharge(true)
	w.hears("functions 0")
	if _, err := first.c.Recv(); grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("when another one is: %v", err)
	}
	if _, err := client.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-w.second.streams
}

// Control planes come and go. One that is not to be found any more is let go when it ends.
func TestControlPlanesComeAndGo(t *testing.T) {
	first, second := serveControlPlane(t), serveControlPlane(t)
	d := &directory{all: map[string]func() (uplink.Conn, error){"first": first.dial}}
	r := newRigOf(t, first, d)
	r.Event(event("First"))
	r.start()
	a := r.comes(first)
	a.functions(1)
	r.hears("functions 1")
	a.want(tells(event("First")))
	d.mu.Lock()
	d.all = map[string]func() (uplink.Conn, error){"second": second.dial}
	d.mu.Unlock()
	a.end <- errors.New("it moved")
	b := r.comes(second)
	r.Event(event("Second"))
	b.want(tells(event("Second"))) // the first one was told already
	b.functions(2)
	r.hears("functions 2")
	if n := r.Connected(); n != 1 {
		t.Errorf("%d are connected", n)
	}
}

// A directory that fails does not end what is there, and is asked again.
func TestDirectoryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := failing{asked: make(chan time.Time)}
		r := newRigOf(t, nil, d)
		r.start()
		last := <-d.asked
		for range 20 {
			at := <-d.asked
			if at.Sub(last) > 2*time.Second {
				t.Errorf("asked again after %s", at.Sub(last))
			}
			last = at
		}
		r.stop()
		<-r.stopped
	})
}

type failing struct {
	uplink.Directory
	asked chan time.Time
}

func (f failing) Any() string { return "" }

func (f failing) Addresses(ctx context.Context) ([]string, error) {
	select {
	case f.asked <- time.Now():
	case <-ctx.Done():
	}
	return nil, errors.New("no such host")
}

var _ uplink.Conn = (*grpc.ClientConn)(nil)

// A daemon that knows none but those of a while ago takes what leads to any, until it knows
// better.
func TestTheSpareAddress(t *testing.T) {
	cp := serveControlPlane(t)
	refused := func() (uplink.Conn, error) {
		return &away{tried: make(chan time.Time, 1000), lasts: func(int) time.Duration { return 0 }}, nil
	}
	d := &directory{all: map[string]func() (uplink.Conn, error){"old": refused, "service": cp.dial}, spare: "service"}
	r := newRigOf(t, cp, d)
	r.start()
	s := r.comes(cp)
	s.functions(1)
	r.hears("functions 1")
	d.mu.Lock()
	d.all["new"] = cp.dial
	delete(d.all, "old")
	d.mu.Unlock()
	s.end <- errors.New("it has come by another stream") // as control planes do
	s = r.comes(cp)
	s.functions(2)
	r.hears("functions 2")
	r.Event(event("First"))
	s.want(tells(event("First")))
	if n := r.Connected(); n != 1 {
		t.Errorf("%d are connected", n)
	}
}

func (s *stream) keys(all ...string) {
	m := &nodeapi.Keys{}
	for _, key := range all {
		m.Keys = append(m.Keys, []byte(key))
	}
	s.say(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Keys{Keys: m}})
}

// trusts wants these keys to count by the time that the handler has heard a word.
func (r *rig) trusts(s *stream, want ...string) {
	r.t.Helper()
	s.expect("all before")
	r.hears("expect all before")
	r.handler.mu.Lock()
	defer r.handler.mu.Unlock()
	if !slices.Equal(r.handler.keys, want) {
		r.t.Errorf("the keys %q count, want %q", r.handler.keys, want)
	}
}

// Any control plane may bind a request, so the keys of all count together. While one has none, as an
// older one, none count: what it binds is not signed.
func TestKeysOfAllControlPlanesCount(t *testing.T) {
	w := newTwo(t)
	w.a.keys("shared", "old")
	w.trusts(w.a, "old", "shared")
	w.b.functions(1) // the older one speaks
	w.trusts(w.b)
	w.b.end <- errors.New("it is updated")
	w.b = w.comes(w.second)
	w.trusts(w.a, "old", "shared")
	w.b.keys("next", "shared")
	w.trusts(w.b, "next", "old", "shared")
	w.a.keys("shared")
	w.trusts(w.a, "next", "shared")
}

// A daemon that loses its control planes goes on asking for what they have signed.
func TestKeysOutliveTheStream(t *testing.T) {
	r := newRig(t)
	r.start()
	s := r.comes(r.cp)
	s.keys("one")
	r.trusts(s, "one")
	s.end <- errors.New("it restarts")
	s = r.comes(r.cp)
	r.handler.mu.Lock()
	keys, told := r.handler.keys, r.handler.told
	r.handler.mu.Unlock()
	if !slices.Equal(keys, []string{"one"}) || told != 1 {
		t.Errorf("without a control plane the keys %q count, told %d times", keys, told)
	}
	s.keys("two")
	r.trusts(s, "two")
}
