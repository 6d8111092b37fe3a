package problem_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// Whether a try speaks against a stream's entry, and whether an instance is tried again, hangs
// on this.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		reason problem.Reason
		status int
		want   problem.Fault
	}{
		{problem.ReasonFunctionFailed, http.StatusBadGateway, problem.FaultRequest},
		{problem.ReasonStoreTimeout, http.StatusGatewayTimeout, problem.FaultRequest},
		{"StoreUnavailable", http.StatusBadGateway, problem.FaultUnknown},
		{"FunctionExited", http.StatusBadGateway, problem.FaultUnknown},
		{problem.ReasonInputNotFound, http.StatusNotFound, problem.FaultRequest},
		{"OfALaterVersion", http.StatusConflict, problem.FaultRequest},
		{"OfALaterVersion", http.StatusServiceUnavailable, problem.FaultUnknown},
		{problem.ReasonFunctionUnknown, http.StatusNotFound, problem.FaultNobody},
		{problem.ReasonInstanceGone, http.StatusServiceUnavailable, problem.FaultNobody},
	} {
		if got := problem.FaultOf(problem.New(c.status, c.reason, "", "")); got != c.want {
			t.Errorf("%s, %d: %v, want %v", c.reason, c.status, got, c.want)
		}
	}
}

func TestReasonOf(t *testing.T) {
	if got := problem.ReasonOf(fmt.Errorf(
		"delivering: %w", problem.InstanceGone(),
	)); got != problem.ReasonInstanceGone {
		t.Errorf("it is %q", got)
	}
	for _, err := range []error{nil, errors.New("no problem")} {
		if got := problem.ReasonOf(err); got != "" {
			t.Errorf("%v is %q", err, got)
		}
	}
}
