package trigger

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// An answer's outcome is its own: a function can answer anything, also what looks like Headstart's words.
func FuzzOutcome(f *testing.F) {
	f.Add(503, "application/problem+json", []byte(`{"type":"https://headstart.dev/errors#InstanceGone","title":"InstanceGone","status":200}`))
	f.Add(200, "application/problem+json", []byte(`{"type":"https://headstart.dev/errors#A B","title":"A B"}`))
	f.Add(500, "text/plain", []byte(`no`))
	f.Add(99, "application/problem+json", []byte(`null`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		function := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			w.WriteHeader(status)
			if n, err := w.Write(body); n != len(body) || err != nil {
				t.Errorf("written %d of %d: %v", n, len(body), err)
			}
		})
		o := outcomeOf(call.Do(function, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), call.Keep{Most: problemMost, Whole: true}))
		want := status
		if status < http.StatusOK {
			want = http.StatusOK
		}
		if o.status != want {
			t.Errorf("%d is taken for %d", status, o.status)
		}
		if o.failure != nil && (o.failure.Status != o.status || !problem.IsTitle(o.failure.Title)) {
			t.Errorf("%+v", o.failure)
		}
	})
}
