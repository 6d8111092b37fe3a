package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// hint is what the filter sends ahead of a request.
func hint(function, id, reference string) *http.Request {
	req := httptest.NewRequest("POST", "/v1/hint", nil)
	req.Header.Set("x-headstart-function", function)
	req.Header.Set("x-headstart-request", id)
	req.Header.Set("x-headstart-input", reference)
	return req
}

// countFetches counts the fetches that the store sees; the objects have one part.
func (r *rig) countFetches() *atomic.Int32 {
	var n atomic.Int32
	r.store.Before = func(context.Context, source.Reference, int64) error { n.Add(1); return nil }
	return &n
}

// However a hint and its request follow each other, the input is fetched once, and its
// bytes go with the request.
func TestAHintAndItsRequestShareOneFetch(t *testing.T) {
	for name, hintComes := range map[string]string{"before the request": "before", "during the request": "during"} {
		t.Run(name, func(t *testing.T) {
			ahead := func() {}
			var got seen
			var r *rig
			r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if hintComes == "during" {
					ahead()
				}
				see(t, &r, &got)(w, req)
			})
			fetches := r.countFetches()
			ref, id := r.put("some", "", []byte("input")), newID()
			ahead = func() {
				if resp := call(r.Hints(), hint(withInput, id, ref)); resp.StatusCode != http.StatusAccepted {
					t.Errorf("the hint is answered %d", resp.StatusCode)
				}
			}
			if hintComes == "before" {
				ahead()
			}
			r.do(t, request(t, "POST", withInput, id, ref, nil))
			if got.body != "input" || got.file != "input" || fetches.Load() != 1 {
				t.Errorf("%d fetches, and the function saw %+v", fetches.Load(), got)
			}
			eventually(t, "nothing is held", func() bool { return r.cp.holds(withInput) == 0 })
			r.nothingLeft(t)
		})
	}
}

// A hint of another input than the request's fails the request: one of them lies.
func TestAHintOfAnotherInput(t *testing.T) {
	r := newRig(t, nil)
	r.store.Before = stall
	id := newID()
	call(r.Hints(), hint(withInput, id, r.put("one", "", []byte("1"))))
	wantProblem(t, r.do(t, request(t, "POST", withInput, id, r.put("two", "", []byte("2")), nil)), http.StatusConflict, "DuplicateRequest", "headstart.dev/input")
}

func TestAHintMustBeWellFormed(t *testing.T) {
	r := newNode(t, nil)
	ref, id := r.put("some", "", []byte("input")), newID()
	for name, c := range map[string]struct {
		hint   *http.Request
		status int
		title  string
	}{
		"no id":             {hint(withInput, "", ref), http.StatusBadRequest, "HintMalformed"},
		"a path as id":      {hint(withInput, "../x", ref), http.StatusBadRequest, "HintMalformed"},
		"no input":          {hint(withInput, id, ""), http.StatusBadRequest, "HintMalformed"},
		"takes no input":    {hint(withoutInput, id, ref), http.StatusBadRequest, "HintMalformed"},
		"unknown function":  {hint("default/none", id, ref), http.StatusNotFound, "FunctionUnknown"},
		"function unstated": {hint("", id, ref), http.StatusNotFound, "FunctionUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, call(r.Hints(), c.hint), c.status, c.title, "")
			r.Expect(&nodeapi.Expect{Function: c.hint.Header.Get("x-headstart-function"), Request: c.hint.Header.Get("x-headstart-request"), Input: c.hint.Header.Get("x-headstart-input")})
		})
	}
	// Each came once as a hint and once as the control plane's word.
	if got := metrics(t, r); !strings.Contains(got, `headstart_hints_total{result="refused"} 12`+"\n") {
		t.Errorf("refused hints are counted otherwise:\n%s", got)
	}
	select {
	case o := <-r.outcomes:
		t.Errorf("something was fetched: %+v", o)
	default:
	}
}

// The input of a hint that no request follows is let go, fetched or not; so is that of a
// request bound to an instance here that does not come.
func TestAHintWithoutRequestIsForgotten(t *testing.T) {
	for name, ahead := range map[string]func(*rig, string, string){
		"hint":   func(r *rig, id, ref string) { call(r.Hints(), hint(withInput, id, ref)) },
		"expect": func(r *rig, id, ref string) { r.Expect(&nodeapi.Expect{Request: id, Function: withInput, Input: ref}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newNode(t, nil)
				r.store.Before = func(ctx context.Context, ref source.Reference, _ int64) error {
					if ref.Key == "slow" {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				ahead(r, newID(), r.put("fast", "", make([]byte, 10)))
				ahead(r, newID(), r.put("slow", "", make([]byte, 100)))
				synctest.Wait()
				if used := r.buffer.Used(); used != 110 {
					t.Errorf("%d bytes are buffered", used)
				}
				time.Sleep(ingress.HintLife)
				synctest.Wait()
				r.nothingLeft(t)
				if first, second := <-r.outcomes, <-r.outcomes; first.Reason != "" || second.Reason != "InputCancelled" {
					t.Errorf("the fetches ended with %+v and %+v", first, second)
				}
			})
		})
	}
}

// Hints are no way to fill the node: beyond a bound they are taken and not followed, other namespaces
// have theirs, and requests find room beside them.
func TestAttackHintsOfANamespaceLeaveOthersTheirs(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	ref := r.put("some", "", []byte("input"))
	with := func(name string) *nodeapi.Function {
		return &nodeapi.Function{Name: name, HasInput: true, Store: "edge", InputLimit: inputLimit, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)}
	}
	r.functions.Set([]*nodeapi.Function{with(withInput), with("other/video")})
	open := int(fair.Most(ingress.HintsOpen))
	for n := range open + 100 {
		if resp := call(r.Hints(), hint(withInput, newID(), ref)); resp.StatusCode != http.StatusAccepted {
			t.Fatalf("hint %d is answered %d", n, resp.StatusCode)
		}
	}
	call(r.Hints(), hint("other/video", newID(), ref))
	open++
	for _, want := range []string{
		fmt.Sprintf(`headstart_hints_total{result="accepted"} %d`, open),
		`headstart_hints_total{result="dropped"} 100`,
		`headstart_hints_total{result="refused"} 0`,
	} {
		if got := metrics(t, r); !strings.Contains(got, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	eventually(t, "the fetches have ended", func() bool { return len(r.outcomes) == open })
	r.do(t, request(t, "POST", withInput, newID(), ref, nil))
	if got.body != "input" {
		t.Errorf("a request beside them got %+v", got)
	}
	if want := int64(open * len("input")); r.buffer.Used() > want+5 {
		t.Errorf("%d bytes are buffered, hints may take %d", r.buffer.Used(), want)
	}
}

// What is released with the ingress stays released.
func TestNoHintAfterClose(t *testing.T) {
	r := newNode(t, nil)
	r.store.Before = stall
	ref := r.put("some", "", []byte("input"))
	call(r.Hints(), hint(withInput, newID(), ref))
	r.Close()
	call(r.Hints(), hint(withInput, newID(), ref))
	if o := <-r.outcomes; o.Reason != "InputCancelled" {
		t.Errorf("the fetch ended with %+v", o)
	}
	r.nothingLeft(t)
}

// An expected request finds its input on the way.
func TestExpectStartsTheFetch(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	fetches := r.countFetches()
	ref, id := r.put("some", "", []byte("input")), newID()
	r.Expect(&nodeapi.Expect{Request: id, Function: withInput, Instance: target, Input: ref})
	if o := <-r.outcomes; o != (objects.Outcome{Function: withInput, Store: "edge", Way: objects.WayStore, Bytes: 5, Began: o.Began, Ended: o.Ended}) {
		t.Errorf("the fetch ended with %+v", o)
	}
	req := request(t, "POST", withInput, id, ref, nil)
	req.Header.Set("x-headstart-instance", target)
	if resp := call(r.Peers(), req); resp.StatusCode != http.StatusOK || fetches.Load() != 1 || got.body != "input" {
		t.Errorf("%d after %d fetches: %s", resp.StatusCode, fetches.Load(), fmt.Sprint(got))
	}
}
