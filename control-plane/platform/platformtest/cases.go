package platformtest

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

func (s suite) stateHasWhatIsDeployed() {
	other := Fire()
	other.Name, other.Hosts = "default/other", []string{"other.default.example.com"}
	s.deploy(Fire())
	s.deploy(other)
	s.Delete(other.Name)
	s.await("the deleted function is gone", func(st platform.State) bool {
		_, here := function(st, Fire().Name)
		return here && gone(st, other.Name)
	})
}

func (s suite) aChangeIsANewGeneration() {
	f := Fire()
	first := s.deploy(f).Generation
	f.Image = "example.com/fire:2"
	second := s.deploy(f).Generation
	if first < 1 || second <= first {
		s.Errorf("generations are %d, then %d", first, second)
	}
	s.Delete(f.Name)
	s.await("the function is gone", func(st platform.State) bool { return gone(st, f.Name) })
	if third := s.deploy(f).Generation; third <= second {
		s.Errorf("deployed again, the function has generation %d, after %d", third, second)
	}
}

func (s suite) aStateIsTheCallers() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.activate(Fire().Name, "edge")
	before := s.Platform().State()
	functions, instances := slices.Clone(before.Functions), slices.Clone(before.Instances)
	s.Ready(in, address)
	s.awaitPhase(in.ID, platform.Ready)
	s.Delete(Fire().Name)
	s.awaitGone(in.ID)
	if d := cmp.Diff(
		platform.State{Functions: functions, Instances: instances}, before, cmpopts.EquateComparable(netip.AddrPort{}),
	); d != "" {
		s.Errorf("a state changed after it was handed out: %s", d)
	}
}

func (s suite) watchTellsOfChanges() {
	s.Join("edge")
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	one, other := s.Platform().Watch(ctx), s.Platform().Watch(ctx)
	changes := []struct {
		what string
		make func()
		seen func(platform.State) bool
	}{
		{"deploying", func() { s.Deploy(Fire()) }, func(st platform.State) bool { return len(st.Functions) == 1 }},
		{"activating", func() { s.activate(Fire().Name, "edge") }, func(st platform.State) bool { return len(st.Instances) == 1 }},
		{"readiness", func() { s.Ready(s.Platform().State().Instances[0], address) }, func(st platform.State) bool { return st.Instances[0].Phase == platform.Ready }},
		{"an exit", func() { s.Exit(s.Platform().State().Instances[0]) }, func(st platform.State) bool { return len(st.Instances) == 0 }},
	}
	for _, c := range changes {
		c.make()
		for _, w := range []<-chan struct{}{one, other} {
			// A token may be about an earlier change; the last one comes after this.
			for s.awaitToken(w, c.what); !c.seen(s.Platform().State()); {
				s.awaitToken(w, c.what)
			}
		}
	}
}

func (s suite) watchEndsWithItsContext() {
	ctx, cancel := context.WithCancel(s.Context())
	ended, goesOn := s.Platform().Watch(ctx), s.Platform().Watch(s.Context())
	cancel()
	for range ended { // a token may be left; then the channel is closed
	}
	s.Deploy(Fire())
	s.awaitToken(goesOn, "deploying")
}

func (s suite) anUnknownFunctionIsRefused() {
	s.Join("edge")
	s.expectStatus(s.refused("default/nothing", "edge"), http.StatusNotFound)
}

func (s suite) noNodeIsRefused() {
	s.deploy(Fire())
	s.expectStatus(s.refused(Fire().Name, "edge"), http.StatusServiceUnavailable)
}

func (s suite) anUnknownNodeIsRefused() {
	s.Join("edge")
	f := Fire()
	f.Node = "moon"
	s.deploy(f)
	r := s.refused(f.Name, "edge")
	s.expectStatus(r, http.StatusServiceUnavailable)
	if r.Field != "spec.template.spec.nodeSelector" || !strings.Contains(r.Message, "moon") {
		s.Errorf("the refusal does not say what to fix: %+v", r)
	}
}

func (s suite) aFunctionRunsOnItsOwnNode() {
	s.Join("edge")
	s.Join("cloud")
	f := Fire()
	f.Node = "cloud"
	s.deploy(f)
	if in := s.activate(f.Name, "edge"); in.Node != "cloud" {
		s.Errorf("it runs on %q", in.Node)
	}
}

func (s suite) aRequestIsBoundBeforeReadiness() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.activate(Fire().Name, "edge")
	if want := (platform.Instance{ID: in.ID, Function: Fire().Name, Node: "edge", Phase: platform.Starting}); in != want || in.ID == "" {
		s.Errorf("bound to %+v, want %+v", in, want)
	}
	if st := s.awaitPhase(in.ID, platform.Starting); st != in {
		s.Errorf("state has %+v, the request was bound to %+v", st, in)
	}
}

// A node may say that a function of its own calls another one: which may, the other one's owner says.
func (s suite) aCallerNeedsLeave() {
	s.Join("edge")
	f := Fire()
	f.Policy.Callers = "shop"
	s.deploy(f)
	for caller, may := range map[string]bool{
		"": true, "default/other": true, "shop/cart": true, "shop2/cart": false, "bank/shop": false,
	} {
		_, err := s.Platform().Activate(s.Context(), platform.Request{Function: f.Name, Node: "edge", Caller: caller})
		r, refused := errors.AsType[*platform.Refusal](err)
		if may != (err == nil) || !may && (!refused || r.Status != http.StatusForbidden || r.Reason != "CallNotAllowed") {
			s.Errorf("called by %q: %v", caller, err)
		}
	}
}

func (s suite) requestsShareAnInstance() {
	s.Join("edge")
	s.Join("cloud")
	s.deploy(Fire())
	var mu sync.Mutex
	ids := map[string]bool{}
	together(50, func() {
		in, err := s.Platform().Activate(s.Context(), platform.Request{Function: Fire().Name, Node: "edge"})
		if err != nil {
			s.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		ids[in.ID] = true
	})
	if st := s.Platform().State(); len(ids) != 1 || len(st.Instances) != 1 {
		s.Errorf("the requests are bound to %v, state has %+v", ids, st.Instances)
	}
}

func (s suite) aReadyInstanceIsUsed() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.hot(Fire().Name, "edge")
	if in.Address.String() != address {
		s.Errorf("its address is %s", in.Address)
	}
	if again := s.activate(Fire().Name, "edge"); again != in {
		s.Errorf("the next request is bound to %+v, want %+v", again, in)
	}
}

func (s suite) aFailedStartIsNotTheLast() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.activate(Fire().Name, "edge")
	s.Fail(in)
	s.awaitGone(in.ID)
	s.activateNew(in, "edge")
}

func (s suite) anExitIsNotTheEnd() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.hot(Fire().Name, "edge")
	s.Exit(in)
	s.awaitGone(in.ID)
	s.activateNew(in, "edge")
}

func (s suite) aChangedFunctionGetsANewInstance() {
	s.Join("edge")
	f := s.deploy(Fire())
	old := s.hot(f.Name, "edge")
	f.Image = "example.com/fire:2"
	s.deploy(f)
	s.await("the old instance is withdrawn", withdrawn(f.Name))
	s.activateNew(old, "edge")
	s.awaitGone(old.ID)
}

func (s suite) aDeletedFunctionIsRefused() {
	s.Join("edge")
	f := s.deploy(Fire())
	in := s.hot(f.Name, "edge")
	s.Delete(f.Name)
	s.await("the instance is withdrawn", withdrawn(f.Name))
	s.expectStatus(s.refused(f.Name, "edge"), http.StatusNotFound)
	s.await("the function goes after its instances", func(st platform.State) bool {
		_, there := function(st, f.Name)
		if _, runs := instance(st, in.ID); runs && !there {
			s.Fatalf("an instance without its function: %+v", st)
		}
		return gone(st, f.Name)
	})
}

func (s suite) scaleToZeroWithdraws() {
	s.Join("edge")
	s.deploy(Fire())
	in := s.hot(Fire().Name, "edge")
	if err := s.Platform().ScaleToZero(s.Context(), Fire().Name); err != nil {
		s.Fatal(err)
	}
	if st := s.Platform().State(); !withdrawn(Fire().Name)(st) {
		s.Errorf("still in use: %+v", st.Instances)
	}
	if again := s.activate(in.Function, "edge"); again.ID == in.ID { // it has been taken back
		s.awaitPhase(in.ID, platform.Ready)
		return
	}
	s.awaitGone(in.ID)
	s.activateNew(in, "edge")
}

func (s suite) aLostNodeIsNotUsed() {
	s.Join("edge")
	s.Join("cloud")
	s.deploy(Fire())
	in := s.hot(Fire().Name, "edge")
	s.Leave(in.Node)
	s.await("the lost node's instance is given up", func(platform.State) bool {
		return s.activate(in.Function, "cloud").ID != in.ID
	})
	if st := s.Platform().State(); slices.ContainsFunc(st.Instances, func(i platform.Instance) bool { return i.ID == in.ID && i.Phase != platform.Stopping }) {
		s.Errorf("requests go to two instances: %+v", st.Instances)
	}
}

// withdrawn says that no request is sent to the function's instances any more.
func withdrawn(name string) func(platform.State) bool {
	return func(st platform.State) bool {
		return !slices.ContainsFunc(st.Instances, func(in platform.Instance) bool { return in.Function == name && in.Phase != platform.Stopping })
	}
}
