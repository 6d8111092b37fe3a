package call_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Of an answer as much is kept as is wanted, and as there is room for. One that breaks off, or is given up, says why.
func TestAnswers(t *testing.T) {
	full := problem.New(http.StatusServiceUnavailable, "TooManyInFlight", "", "no room")
	says := func(status int, parts ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints) // which is none
			w.WriteHeader(status)
			for _, part := range parts {
				if _, err := io.WriteString(w, part); err != nil {
					panic(http.ErrAbortHandler) // as a proxy does
				}
			}
		}
	}
	for name, c := range map[string]struct {
		function http.HandlerFunc
		keep     call.Keep
		want     call.Answer
		reason   problem.Reason
	}{
		"all":     {says(201, "one", "two"), call.Keep{Most: 10}, call.Answer{Status: 201, Body: []byte("onetwo")}, ""},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, call.Keep{Most: 10}, call.Answer{Status: 200}, ""},
		"a part":  {says(200, "one", "two", "three"), call.Keep{Most: 4}, call.Answer{Status: 200, Body: []byte("onet"), Cut: true}, ""},
		"a part, and the end is waited for": {says(200, "one", "two", "three"), call.Keep{Most: 4, Whole: true},
			call.Answer{Status: 200, Body: []byte("onet"), Cut: true}, ""},
		"no room": {says(200, "one", "two"), call.Keep{Most: 10, Grow: func(n int) error {
			if n == len("one") {
				return full
			}
			return nil
		}}, call.Answer{Status: 200}, "TooManyInFlight"},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "one")
			panic(http.ErrAbortHandler)
		}, call.Keep{Most: 10}, call.Answer{Status: 200, Body: []byte("one")}, problem.ReasonFunctionFailed},
		"broken off for a reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.(interface{ Failed(error) }).Failed(full)
			panic(http.ErrAbortHandler)
		}, call.Keep{Most: 10}, call.Answer{Status: 200}, "TooManyInFlight"},
		"a bug": {func(http.ResponseWriter, *http.Request) { panic(errors.New("bug")) }, call.Keep{}, call.Answer{Status: 200}, "Internal"},
	} {
		got := call.Do(c.function, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), c.keep)
		var reason problem.Reason
		if got.Failed != nil {
			reason = problem.Reason(got.Failed.Title)
		}
		if got.Status != c.want.Status || string(got.Body) != string(c.want.Body) || got.Cut != c.want.Cut || reason != c.reason {
			t.Errorf("%s: %+v, %s", name, got, reason)
		}
	}
}

// A stranger's answer is no problem of ours, whatever it looks like.
func TestAnAnswerIsTheFunctions(t *testing.T) {
	got := call.Do(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, strings.Repeat("{", 10))
	}), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), call.Keep{Most: 100})
	if got.Failed != nil || got.Status != http.StatusBadGateway || got.Header.Get("Content-Type") == "" {
		t.Errorf("%+v", got)
	}
}

// server answers requests as it likes.
type server func(*http.Request) *http.Response

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r), nil }

// A server outside hears nothing that only gateways say, nor what is for the next hop; one that switches to another protocol, whose body has
// no end, has not answered.
func TestServersOutside(t *testing.T) {
	end, never := io.Pipe()
	defer never.Close()
	for status, failed := range map[int]bool{http.StatusOK: false, http.StatusSwitchingProtocols: true} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example/", nil)
		for _, name := range []string{"Connection", "Upgrade", "X-Forwarded-For", "X-Headstart-Caller", "X-Own"} {
			r.Header.Set(name, "1")
		}
		got := call.Send(server(func(r *http.Request) *http.Response {
			if len(r.Header) != 1 || r.Header.Get("X-Own") == "" {
				t.Errorf("it hears %v", r.Header)
			}
			var body io.ReadCloser = end
			if status == http.StatusOK {
				body = io.NopCloser(strings.NewReader("body"))
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: body}
		}), r, call.Keep{Most: 100})
		if (got.Failed != nil) != failed || !failed && string(got.Body) != "body" {
			t.Errorf("%d: %+v", status, got)
		}
	}
}
