// Package platformtest says what every adapter of platform.Platform does.
package platformtest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// World is a platform with all that it depends on. Its methods return when the event has
// happened; the platform may hear of it later. What the platform wants stopped, the world
// stops by itself.
type World interface {
	Platform() platform.Platform
	// Deploy makes the function exist, or changes it.
	Deploy(f platform.Function)
	// Deployed is how the platform has a function that is deployed like f, but for its
	// generation: without what it cannot be told, with what it adds.
	Deployed(f platform.Function) platform.Function
	Delete(function string)
	// Join connects a node with what runs on it.
	Join(node string)
	Leave(node string)
	// Ready completes an instance's start.
	Ready(in platform.Instance, address string)
	// Fail ends an instance's start.
	Fail(in platform.Instance)
	// Exit ends a ready instance's program.
	Exit(in platform.Instance)
}

// patience is how long the suite waits for a platform to hear of something. Nothing but
// a failure takes that long.
const patience = 30 * time.Second

// address is where instances answer; nobody calls them.
const address = "10.1.0.2:8080"

// Fire returns a function to deploy.
func Fire() platform.Function {
	return platform.Function{
		Name: "default/fire", Hosts: []string{"fire.default.example.com"}, Image: "example.com/fire:1", Args: []string{"-v"},
		Env: map[string]string{"MODE": "fast"}, Port: 8080, RequestTimeout: time.Minute,
		Policy: policy.Policy{Store: "default", ScaleToZero: 30 * time.Second, ReadyTimeout: 20 * time.Second, Routing: policy.RoutingBalanced},
	}
}

// Test runs the suite. run calls each test with a world of its own, in which no node is
// connected and nothing is deployed.
func Test(t *testing.T, run func(t *testing.T, test func(*testing.T, World))) {
	tests := []struct {
		name string
		test func(suite)
	}{
		{"StateHasWhatIsDeployed", suite.stateHasWhatIsDeployed},
		{"AChangeIsANewGeneration", suite.aChangeIsANewGeneration},
		{"AStateIsTheCallers", suite.aStateIsTheCallers},
		{"WatchTellsOfChanges", suite.watchTellsOfChanges},
		{"WatchEndsWithItsContext", suite.watchEndsWithItsContext},
		{"AnUnknownFunctionIsRefused", suite.anUnknownFunctionIsRefused},
		{"ACallerNeedsLeave", suite.aCallerNeedsLeave},
		{"NoNodeIsRefused", suite.noNodeIsRefused},
		{"AnUnknownNodeIsRefused", suite.anUnknownNodeIsRefused},
		{"AFunctionRunsOnItsOwnNode", suite.aFunctionRunsOnItsOwnNode},
		{"ARequestIsBoundBeforeReadiness", suite.aRequestIsBoundBeforeReadiness},
		{"RequestsShareAnInstance", suite.requestsShareAnInstance},
		{"AReadyInstanceIsUsed", suite.aReadyInstanceIsUsed},
		{"AFailedStartIsNotTheLast", suite.aFailedStartIsNotTheLast},
		{"AnExitIsNotTheEnd", suite.anExitIsNotTheEnd},
		{"AChangedFunctionGetsANewInstance", suite.aChangedFunctionGetsANewInstance},
		{"ADeletedFunctionIsRefused", suite.aDeletedFunctionIsRefused},
		{"ScaleToZeroWithdraws", suite.scaleToZeroWithdraws},
		{"ALostNodeIsNotUsed", suite.aLostNodeIsNotUsed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w World) { tt.test(suite{t, w}) })
		})
	}
}

type suite struct {
	*testing.T
	World
}

// await returns the state once it is as it should be.
func (s suite) await(what string, ok func(platform.State) bool) platform.State {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	changes := s.Platform().Watch(ctx)
	for {
		st := s.Platform().State()
		if ok(st) {
			return st
		}
		if _, open := <-changes; !open {
			s.Fatalf("waiting until %s, the state is still %+v", what, st)
		}
	}
}

// deploy waits until the platform knows the function.
func (s suite) deploy(f platform.Function) platform.Function {
	s.Helper()
	s.Deploy(f)
	st := s.await("the function is deployed", func(st platform.State) bool {
		got, ok := function(st, f.Name)
		return ok && cmp.Equal(s.Deployed(f), got, cmpopts.IgnoreFields(f, "Generation"), cmpopts.EquateEmpty())
	})
	got, _ := function(st, f.Name)
	return got
}

func (s suite) awaitToken(watch <-chan struct{}, change string) {
	s.Helper()
	select {
	case _, open := <-watch:
		if !open {
			s.Fatal("the watch has ended")
		}
	case <-time.After(patience):
		s.Fatalf("%s did not wake a watcher", change)
	}
}

func (s suite) activate(f, node string) platform.Instance {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	in, err := s.Platform().Activate(ctx, platform.Request{ID: "0123456789abcdef0123456789abcdef", Function: f, Node: node})
	if err != nil {
		s.Fatalf("activating %s: %v", f, err)
	}
	return in
}

// activateNew waits for an instance other than before.
func (s suite) activateNew(before platform.Instance, node string) platform.Instance {
	s.Helper()
	in := s.activate(before.Function, node)
	if in.ID == before.ID || in.Phase != platform.Starting {
		s.Fatalf("after %+v the request is bound to %+v, want a new one", before, in)
	}
	return in
}

func (s suite) refused(f, node string) *platform.Refusal {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	in, err := s.Platform().Activate(ctx, platform.Request{ID: "0123456789abcdef0123456789abcdef", Function: f, Node: node})
	var r *platform.Refusal
	if !errors.As(err, &r) {
		s.Fatalf("activating %s: instance %+v, error %v, want a Refusal", f, in, err)
	}
	if r.Reason == "" || r.Message == "" {
		s.Errorf("the refusal says too little: %+v", r)
	}
	return r
}

func (s suite) awaitPhase(id string, want platform.Phase) platform.Instance {
	s.Helper()
	st := s.await(id+" is "+string(want), func(st platform.State) bool {
		in, ok := instance(st, id)
		return ok && in.Phase == want
	})
	in, _ := instance(st, id)
	return in
}

func (s suite) awaitGone(id string) {
	s.Helper()
	s.await(id+" is gone", func(st platform.State) bool { _, ok := instance(st, id); return !ok })
}

// hot returns a ready instance.
func (s suite) hot(f, node string) platform.Instance {
	s.Helper()
	in := s.activate(f, node)
	s.Ready(in, address)
	return s.awaitPhase(in.ID, platform.Ready)
}

func function(st platform.State, name string) (platform.Function, bool) {
	i := slices.IndexFunc(st.Functions, func(f platform.Function) bool { return f.Name == name })
	if i < 0 {
		return platform.Function{}, false
	}
	return st.Functions[i], true
}

// gone says that there is no such function, or is none any more and nothing of it runs.
func gone(st platform.State, name string) bool {
	f, there := function(st, name)
	runs := slices.ContainsFunc(st.Instances, func(in platform.Instance) bool { return in.Function == name })
	return !there || f.Withdrawn && !runs
}

func instance(st platform.State, id string) (platform.Instance, bool) {
	i := slices.IndexFunc(st.Instances, func(in platform.Instance) bool { return in.ID == id })
	if i < 0 {
		return platform.Instance{}, false
	}
	return st.Instances[i], true
}

// together calls f n times at once.
func together(n int, f func()) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range n {
		wg.Go(f)
	}
}

func (s suite) expectStatus(r *platform.Refusal, status int) {
	s.Helper()
	if r.Status != status {
		s.Errorf("the refusal is %d (%s), want %d (%s)", r.Status, r, status, http.StatusText(status))
	}
}
