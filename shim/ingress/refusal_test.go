package ingress_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// refusal is what the filter sends when it answered a request by itself.
func refusal(function, reason, field string) *http.Request {
	req := httptest.NewRequest("POST", "/v1/refusal", nil)
	req.Header.Set("x-headstart-function", function)
	req.Header.Set("x-headstart-reason", reason)
	req.Header.Set("x-headstart-field", field)
	return req
}

const malformed = "InputReferenceMalformed"

// The operator hears of what the filter refuses: which header, and what to do.
func TestARefusalIsAnEvent(t *testing.T) {
	r := newNode(t, nil)
	for _, field := range []string{
		"header x-key", "header x-dir, x-key", "query key", "path", "path, query Frame_1, header x-key",
	} {
		r.cp.events = nil
		if resp := call(r.Hints(), refusal(withInput, malformed, field)); resp.StatusCode != http.StatusAccepted {
			t.Errorf("it is answered %d", resp.StatusCode)
		}
		if len(r.cp.events) != 1 {
			t.Fatalf("the operator is told %v", r.cp.events)
		}
		e := r.cp.events[0]
		if got, want := [3]string{e.GetFunction(), e.GetReason(), e.GetField()}, [3]string{withInput, malformed, field}; got != want {
			t.Errorf("the event is of %v, want %v", got, want)
		}
		if !strings.HasPrefix(e.GetMessage(), field+" ") || !strings.Contains(e.GetMessage(), "send it as headstart.dev/input needs it") {
			t.Errorf("the event says %q", e.GetMessage())
		}
	}
	if got := metrics(t, r); strings.Contains(got, "headstart_hints_total{result=\"accepted\"} 1") {
		t.Error("a refusal is counted as a hint")
	}
}

// Nothing else gets into the operator's events that way.
func TestARefusalMustBeWellFormed(t *testing.T) {
	r := newNode(t, nil)
	for name, c := range map[string]struct {
		refusal *http.Request
		status  int
		title   string
	}{
		"unknown function":    {refusal("default/none", malformed, "header x-key"), http.StatusNotFound, "FunctionUnknown"},
		"takes no input":      {refusal(withoutInput, malformed, "header x-key"), http.StatusBadRequest, "RefusalMalformed"},
		"no reason":           {refusal(withInput, "", "header x-key"), http.StatusBadRequest, "RefusalMalformed"},
		"another's reason":    {refusal(withInput, "FunctionFailed", "header x-key"), http.StatusBadRequest, "RefusalMalformed"},
		"no field":            {refusal(withInput, malformed, ""), http.StatusBadRequest, "RefusalMalformed"},
		"no header":           {refusal(withInput, malformed, "headstart.dev/input"), http.StatusBadRequest, "RefusalMalformed"},
		"words":               {refusal(withInput, malformed, "header x-key: call 555"), http.StatusBadRequest, "RefusalMalformed"},
		"a control character": {refusal(withInput, malformed, "header x-key\x1b"), http.StatusBadRequest, "RefusalMalformed"},
		"a second line":       {refusal(withInput, malformed, "header x-key\n"), http.StatusBadRequest, "RefusalMalformed"},
		"long":                {refusal(withInput, malformed, "header "+strings.Repeat("x", 2048)), http.StatusBadRequest, "RefusalMalformed"},
		"nine headers":        {refusal(withInput, malformed, "header a"+strings.Repeat(", a", 8)), http.StatusBadRequest, "RefusalMalformed"},
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, call(r.Hints(), c.refusal), c.status, c.title, "")
		})
	}
	if diff := cmp.Diff([]*nodeapi.Event(nil), r.cp.events); diff != "" {
		t.Errorf("the operator is told (-want +got):\n%s", diff)
	}
}
