package local

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// How often gateways report, see xds.LoadInterval.
const reportInterval = time.Second

// An idle function goes to zero when its window is over: withdrawn first, then out of
// the gateways, then stopped.
func TestAnIdleFunctionIsScaledToZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		settled := make(chan struct{})
		w.routes.settle = func(ctx context.Context) error {
			if got := w.now(in).Phase; got != platform.Stopping {
				t.Errorf("the gateways are asked to let go of an instance that is %s", got)
			}
			<-settled
			return nil
		}
		time.Sleep(fireFunction().Policy.ScaleToZero - idleTick)
		w.wantPhase(in, platform.Ready)
		time.Sleep(2 * idleTick)
		synctest.Wait()
		w.wantPhase(in, platform.Stopping)
		if got := w.now(in).Address; got.String() != address { // requests that it has are still counted by it
			t.Errorf("its address is %s", got)
		}
		time.Sleep(settleTimeout - time.Second)
		if got := w.stops(); len(got) != 0 {
			t.Errorf("stopped while a gateway may use it: %v", got)
		}
		close(settled)
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
		if d := cmp.Diff([]string{in.ID}, w.stops()); d != "" {
			t.Error(d)
		}
	})
}

// While anybody has a request of it in hand, a function is not idle.
func TestABusyFunctionStays(t *testing.T) {
	reports := map[string]func(*Platform){
		"by a node's word": func(p *Platform) { p.Load("edge", map[string]int32{fire: 1}) },
		"by one of several": func(p *Platform) {
			p.Load("edge", map[string]int32{fire: 1})
			p.Load("cloud", map[string]int32{"default/other": 3, fire: 0})
		},
	}
	for name, report := range reports {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				in := w.hot("edge")
				w.Join("cloud")
				report(w.p)
				time.Sleep(time.Hour)
				w.wantPhase(in, platform.Ready)
				w.p.Load("edge", nil)
				time.Sleep(fireFunction().Policy.ScaleToZero - idleTick)
				w.wantPhase(in, platform.Ready)
				time.Sleep(2*idleTick + drainQuiet + idleTick)
				synctest.Wait()
				w.wantPhase(in, "")
			})
		})
	}
}

// Requests may come up to the moment that the gateways let go, and are reported later.
func TestTheLastRequestIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		time.Sleep(time.Minute / 2)
		if err := w.p.ScaleToZero(t.Context(), fire); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reportInterval)
		w.p.Load("edge", map[string]int32{fire: 1}) // sent just before
		time.Sleep(10 * time.Second)
		if got := w.stops(); len(got) != 0 {
			t.Fatal("stopped with a request in hand")
		}
		w.p.Load("edge", nil)
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
	})
}

func TestADrainEndsWithTheRequestTimeout(t *testing.T) {
	longest := fireFunction().RequestTimeout
	cases := []struct {
		name     string
		withdraw func(*testing.T, *world)
	}{
		{"scaled to zero", func(t *testing.T, w *world) {
			if err := w.p.ScaleToZero(t.Context(), fire); err != nil {
				t.Fatal(err)
			}
		}},
		{"deleted", func(_ *testing.T, w *world) { w.Delete(fire) }},
		{"changed", func(_ *testing.T, w *world) {
			f := withImage(fireFunction())
			f.RequestTimeout = time.Second // of new requests
			w.Deploy(f)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				in := w.hot("edge")
				w.p.Load("edge", map[string]int32{fire: 1})
				c.withdraw(t, w)
				time.Sleep(longest - idleTick)
				if got := w.stops(); len(got) != 0 {
					t.Fatal("stopped with a request in hand")
				}
				time.Sleep(2 * idleTick)
				synctest.Wait()
				w.wantPhase(in, "")
			})
		})
	}
}

// Requests wait for a starting instance before they take their time.
func TestAStartingInstanceServesWhatWaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		w.Deploy(fireFunction())
		in := w.activate(fire, "edge")
		w.p.Load("edge", map[string]int32{fire: 1})
		w.Deploy(withImage(fireFunction()))
		w.wantPhase(in, platform.Stopping)
		time.Sleep(fireFunction().Policy.ReadyTimeout)
		w.Ready(in, address)
		w.wantPhase(in, platform.Stopping)
		time.Sleep(fireFunction().RequestTimeout - idleTick)
		if got := w.stops(); len(got) != 0 {
			t.Fatal("stopped with a request in hand")
		}
		w.p.Load("edge", nil)
		time.Sleep(2 * idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
	})
}

// A gateway that does not answer holds nothing up for long.
func TestAGatewayThatDoesNotSettle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.routes.settle = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		w.Deploy(withImage(fireFunction()))
		time.Sleep(settleTimeout + drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
	})
}

func TestAChangedFunctionIsColdAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old := w.hot("edge")
		w.Deploy(withImage(fireFunction()))
		w.wantPhase(old, platform.Stopping)
		next := w.activate(fire, "edge")
		if next.ID == old.ID {
			t.Error("the next request goes to the old instance")
		}
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(old, "")
		w.wantPhase(next, platform.Starting)
		w.Deploy(withImage(fireFunction())) // unchanged
		w.wantPhase(next, platform.Starting)
	})
}

// A deleted function is listed until its last request is answered, and takes no new one.
func TestADeletedFunctionFinishes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.p.Load("edge", map[string]int32{fire: 1})
		w.Delete(fire)
		st := w.p.State()
		if len(st.Functions) != 1 || !st.Functions[0].Deleting {
			t.Errorf("functions are %+v", st.Functions)
		}
		if err := w.p.Delete(fire); refusalText(err) != `404 FunctionUnknown []: function "default/fire" is not deployed` {
			t.Errorf("deleting again: %v", err)
		}
		_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"})
		if refusalText(err) != "404 FunctionUnknown []: no such function is deployed" {
			t.Errorf("activating: %v", err)
		}
		w.p.Load("edge", nil)
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
		if st := w.p.State(); len(st.Functions) != 0 {
			t.Errorf("functions are %+v", st.Functions)
		}
	})
}

func TestADeletedFunctionLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.p.Load("edge", map[string]int32{fire: 2})
		w.Delete(fire)
		w.Exit(in) // with a reason, which would be an event
		w.p.Load("edge", map[string]int32{fire: 1})
		if a := w.p.activity; len(a.Last)+len(a.Busy) != 0 {
			t.Errorf("activity is %+v", a)
		}
		if got := w.events.Of(fire); len(got) != 0 {
			t.Errorf("events are %+v", got)
		}
	})
}

func TestADeletedFunctionMayComeBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old := w.hot("edge")
		w.Delete(fire)
		changes, err := w.p.Apply([]platform.Function{fireFunction()})
		if err != nil || !slices.Equal(changes, []platform.Change{platform.Created}) {
			t.Errorf("applying: %v, %v", changes, err)
		}
		next := w.activate(fire, "edge")
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(old, "")
		w.wantPhase(next, platform.Starting)
	})
}

// Ctrl-C does not wait for drains.
func TestRunEndsAtOnce(t *testing.T) {
	waits := map[string]func(context.Context) error{
		"for the gateways": func(ctx context.Context) error { <-ctx.Done(); return errors.New("cut off") },
		"for requests":     func(context.Context) error { return nil },
	}
	for name, settle := range waits {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.hot("edge")
				w.p.Load("edge", map[string]int32{fire: 1})
				w.routes.settle = settle
				w.Delete(fire)
				time.Sleep(time.Second)
				began := time.Now()
				w.close()
				if took := time.Since(began); took != 0 {
					t.Errorf("took %s", took)
				}
				if got := w.stops(); len(got) != 0 {
					t.Errorf("stopped with a request in hand: %v", got)
				}
				w.Deploy(fireFunction()) // the operator's last word comes late: nothing begins any more
				w.Delete(fire)
			})
		})
	}
}

// An Envoy that ended with its node said for the last time that it is busy.
func TestALostNodesWordIsNotForever(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.Join("cloud")
		w.p.Load("cloud", map[string]int32{fire: 1})
		w.Leave("cloud")
		time.Sleep(nodeGrace + fireFunction().Policy.ScaleToZero - idleTick)
		w.wantPhase(in, platform.Ready)
		time.Sleep(3*idleTick + drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(in, "")
	})
}
