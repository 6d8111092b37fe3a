package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// forOperator stands in an answer for details that no caller gets.
const forOperator = "the details are for the operator, in `headstart status` and the node's log"

// RFC 9457: the media type, the standard members, extensions beside them.
func TestWrite(t *testing.T) {
	p := problem.New(http.StatusGatewayTimeout, "ReadyTimeout", "headstart.dev/ready-timeout", `not ready <within> "60s"`)
	for name, test := range map[string]struct {
		err               error
		function, request string
		status            int
		want              map[string]any
	}{
		"everything": {err: p, function: "default/fire", request: "0af7651916cd43dd8448eb211c80319c", status: 504, want: map[string]any{
			"type": "https://headstart.dev/errors#ReadyTimeout", "title": "ReadyTimeout", "status": 504.0, "detail": forOperator + ", by this request's id",
			"function": "default/fire", "field": "headstart.dev/ready-timeout", "request": "0af7651916cd43dd8448eb211c80319c"}},
		"wrapped": {err: fmt.Errorf("delivering: %w", errors.Join(fs.ErrClosed, p)), status: 504, want: map[string]any{
			"type": "https://headstart.dev/errors#ReadyTimeout", "title": "ReadyTimeout", "status": 504.0, "detail": forOperator,
			"field": "headstart.dev/ready-timeout"}},
		"nobody's": {err: errors.New("opening /var/lib/headstart/secret: denied"), function: "default/fire", status: 500, want: map[string]any{
			"type": "https://headstart.dev/errors#Internal", "title": "Internal", "status": 500.0, "function": "default/fire",
			"detail": forOperator}},
		"the caller's own": {err: problem.New(http.StatusConflict, problem.ReasonDuplicateRequest, "x-headstart-request", `<this> "one" is under way`),
			status: 409, want: map[string]any{"type": "https://headstart.dev/errors#DuplicateRequest", "title": "DuplicateRequest", "status": 409.0,
				"detail": `<this> "one" is under way`, "field": "x-headstart-request"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			problem.Write(w, test.err, test.function, test.request)
			if w.Code != test.status || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
	if p.Function != "" || p.Request != "" {
		t.Errorf("one request's answer has changed what others get: %+v", p)
	}
}

func TestOf(t *testing.T) {
	p := problem.New(http.StatusBadGateway, "ImageUnavailable", "", "it cannot be pulled")
	if p.Error() != "ImageUnavailable: it cannot be pulled" {
		t.Errorf("it reads %q", p)
	}
	if got := problem.Of(fmt.Errorf("starting: %w", fmt.Errorf("creating: %w", p))); got != p {
		t.Errorf("%v, want the one that is wrapped", got)
	}
	secret := "AKIAEXAMPLE at /var/lib/headstart"
	if got := problem.Of(errors.New(secret)); strings.Contains(fmt.Sprintf("%+v", *got), secret) {
		t.Errorf("%+v tells of the node", *got)
	}
}
