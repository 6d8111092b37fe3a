package ingress_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const isObserved = "shop/fire"

// observe has the node know a function that is only observed.
func (r *rig) observe() {
	functions := []*nodeapi.Function{{Name: isObserved, Hosts: []string{"fire.shop"}, Store: "edge", Observed: map[string]string{
		"": "s3://inputs/{header.x-key}", "mask": "s3://masks/{header.x-key}",
	}}}
	r.functions.Set(functions)
	r.observed.Keep(functions)
}

// observation is what a filter tells of a request, as req has it.
func observation(req *http.Request) *http.Request {
	req.URL.Path = "/v1/observation"
	return req
}

// What is observed is noted and counted, and that is all.
func TestAnObservedInputIsNotFetched(t *testing.T) {
	r := newNode(t, nil)
	r.store.Before = func(_ context.Context, ref source.Reference, _ int64) error {
		t.Errorf("%s is fetched", ref)
		return nil
	}
	r.observe()
	ref := r.put("some", "", []byte("input"))
	if resp := call(r.Hints(), observation(hint(isObserved, newID(), ref))); resp.StatusCode != http.StatusAccepted {
		t.Errorf("a hint is answered %d", resp.StatusCode)
	}
	both := hint(isObserved, newID(), ref)
	both.Header.Set("x-headstart-inputs", "mask=s3://masks/a")
	call(r.Hints(), observation(both))
	if resp := call(r.Hints(), observation(refusal(isObserved, malformed, "header x-key"))); resp.StatusCode != http.StatusAccepted {
		t.Errorf("what the filter would refuse is answered %d", resp.StatusCode)
	}
	call(r.Hints(), observation(hint(isObserved, newID(), "s3://other/a"))) // which the template does not make
	call(r.Hints(), observation(hint(isObserved, "", "")))                  // nothing that a template names
	r.allowed = errors.New("not this bucket")
	call(r.Hints(), hint(isObserved, newID(), ref)) // of a gateway that takes the function for active still

	got := map[string][]int64{}
	for _, e := range r.observed.List("shop") {
		o := e.GetObserved()
		got[o.GetInput()] = []int64{o.GetRequests(), int64(len(o.GetSketch())), o.GetIncomplete(), o.GetRefused(), o.GetUnnamed()}
	}
	if diff := cmp.Diff(map[string][]int64{"": {2, 1, 1, 1, 1}, "mask": {1, 1, 1, 1, 1}}, got); diff != "" {
		t.Errorf("what is noted (-want +got):\n%s", diff)
	}
	counted := metrics(t, r)
	for _, want := range []string{
		`headstart_observed_inputs_total{function="shop/fire",outcome="named"} 2`,
		`headstart_observed_inputs_total{function="shop/fire",outcome="incomplete"} 1`,
		`headstart_observed_inputs_total{function="shop/fire",outcome="refused"} 1`,
		`headstart_observed_inputs_total{function="shop/fire",outcome="unnamed"} 1`,
		`headstart_hints_total{result="accepted"} 0`,
	} {
		if !strings.Contains(counted, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, counted)
		}
	}
	if len(r.cp.events) != 0 || r.cp.activations() != 0 {
		t.Errorf("the control plane hears of it: %v", r.cp.events)
	}
	select {
	case o := <-r.outcomes:
		t.Errorf("something was fetched: %+v", o)
	default:
	}
}

func TestWhatIsObservedMustBeWellFormed(t *testing.T) {
	r := newNode(t, nil)
	r.observe()
	for name, c := range map[string]struct {
		told  *http.Request
		title string
	}{
		"another template": {observation(hint(isObserved, newID(), "s3://other/a")), "HintMalformed"},
		"another's reason": {refusal(isObserved, "FunctionFailed", "header x-key"), "RefusalMalformed"},
		"words":            {refusal(isObserved, malformed, "header x-key: call 555"), "RefusalMalformed"},
	} {
		t.Run(name, func(t *testing.T) { wantProblem(t, call(r.Hints(), c.told), http.StatusBadRequest, c.title, "") })
	}
	for _, e := range r.observed.List("") {
		if o := e.GetObserved(); o.GetRequests()+o.GetIncomplete()+o.GetRefused()+o.GetUnnamed() != 0 {
			t.Errorf("noted is %v", o)
		}
	}
}

// A gateway that takes an active function for an observed one does not have it fetched for.
func TestAnObservationOfAnActiveFunctionIsNothing(t *testing.T) {
	r := newNode(t, nil)
	fetches := r.countFetches()
	ref := r.put("some", "", []byte("input"))
	for _, told := range []*http.Request{hint(withInput, newID(), ref), refusal(withInput, malformed, "header x-key")} {
		if resp := call(r.Hints(), observation(told)); resp.StatusCode != http.StatusAccepted {
			t.Errorf("it is answered %d", resp.StatusCode)
		}
	}
	if fetches.Load() != 0 || len(r.cp.events) != 0 {
		t.Errorf("%d fetches, %v", fetches.Load(), r.cp.events)
	}
}

// A request that comes to the daemon nevertheless, as from another function, gets no input either.
func TestARequestOfAnObservedFunctionHasNoInput(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	r.change(func(f *nodeapi.Function) {
		f.HasInput, f.Observed = false, map[string]string{"": "s3://inputs/{header.x-key}"}
	})
	ref := r.put("some", "", []byte("input"))
	req := request(t, "POST", withInput, newID(), ref, nil)
	req.Header.Set("x-key", "some")
	r.do(t, req)
	if got.body != "" || got.file != "" {
		t.Errorf("the function got %+v", got)
	}
}
