package ingress_test

import (
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// keys are of a gateway whose endpoint for the function with an input has this one.
type keys string

func (k keys) Valid(function, key string) bool { return function == withInput && key == string(k) }
func (k keys) Admits(key string) bool          { return key == "gateways" }

// inMesh is a node whose gateway's routes are others' to write, and a function that videos are the
// input of.
func inMesh(t *testing.T) (r *rig, got *seen) {
	t.Helper()
	got = &seen{}
	r = newRig(t, func(w http.ResponseWriter, req *http.Request) { see(t, &r, got)(w, req) })
	r.change(func(f *nodeapi.Function) { f.InputTemplate = "s3://inputs/videos/{header.x-key}" })
	r.gateway = unixClient(t, serveUnix(t, r.MeshGateway(keys("the key"))))
	return r, got
}

// A request that did not come through the function's cluster is nobody's.
func TestARequestWithoutItsFunctionsKey(t *testing.T) {
	r, got := inMesh(t)
	for name, headers := range map[string][2]string{
		"no key":                 {withInput, ""},
		"a made-up key":          {withInput, "a key"},
		"another function's key": {withoutInput, "the key"},
		"no function":            {"", "the key"},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, "GET", headers[0], newID(), "", nil)
			req.Header.Set("x-headstart-key", headers[1])
			wantProblem(t, r.do(t, req), http.StatusForbidden, "GatewayUnknown", "x-headstart-key")
		})
	}
	if got.header != nil {
		t.Error("the function got one of them")
	}
}

// A route that names an input which no template makes gets what the template makes.
func TestARouteCannotNameAnInput(t *testing.T) {
	for name, c := range map[string]struct{ said, key, want string }{
		"the filter's word":               {"s3://inputs/videos/a", "a", "a video"},
		"an input of nobody's":            {"s3://inputs/secret", "a", "a video"},
		"another bucket":                  {"s3://other/videos/a", "a", "a video"},
		"an input, where it names none":   {"s3://inputs/secret", "", ""},
		"no reference":                    {"secret", "a", "a video"},
		"the word of an older template's": {"s3://inputs/old/a", "a", "a video"},
	} {
		t.Run(name, func(t *testing.T) {
			r, got := inMesh(t)
			r.put("videos/a", "", []byte("a video"))
			r.put("secret", "", []byte("a secret"))
			req := request(t, "GET", withInput, newID(), c.said, nil)
			req.Header.Set("x-headstart-key", "the key")
			if c.key != "" {
				req.Header.Set("x-key", c.key)
			}
			if resp := r.do(t, req); resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			if got.body != c.want {
				t.Errorf("the function has %q, want %q", got.body, c.want)
			}
			if key := got.header.Get("x-headstart-key"); key != "" {
				t.Errorf("the function is told the key %q", key)
			}
		})
	}
}

// Only a gateway's filters hint and ask. A route that leads to hints.sock has fetched nothing, reports no refusals, and
// hears of no instances.
func TestAttackARouteHints(t *testing.T) {
	r, _ := inMesh(t)
	fetches := r.countFetches()
	mux := http.NewServeMux()
	mux.Handle("/", r.Hints())
	mux.HandleFunc("/v1/expectations", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	for path, header := range map[string][2]string{"/v1/expectations": {"if-none-match", ""}, "/v1/hint": {"x-headstart-input", r.put("videos/a", "", []byte("a video"))},
		"/v1/refusal": {"x-headstart-reason", "InputReferenceMalformed"}} {
		for _, key := range []string{"", "a key", "the key", "gateways"} {
			told := request(t, http.MethodPost, withInput, newID(), "", nil)
			told.URL.Path = path
			told.Header.Set(header[0], header[1])
			told.Header.Set("x-headstart-field", "header x-key")
			told.Header.Set("x-headstart-key", key)
			resp := call(r.MeshFilters(keys("the key"), mux), told)
			if key == "gateways" {
				if resp.StatusCode != http.StatusAccepted {
					t.Errorf("%s of a gateway: %s", path, resp.Status)
				}
				continue
			}
			wantProblem(t, resp, http.StatusForbidden, "GatewayUnknown", "x-headstart-key")
			if n := fetches.Load(); n != 0 && path == "/v1/hint" {
				t.Errorf("%d fetches with the key %q", n, key)
			}
		}
	}
}

// A hint is worth what the function's template says of its input.
func TestAHintOfWhatNoTemplateMakes(t *testing.T) {
	r, _ := inMesh(t)
	fetches := r.countFetches()
	wantProblem(t, call(r.Hints(), hint(withInput, newID(), r.put("secret", "", []byte("a secret")))),
		http.StatusBadRequest, "HintMalformed", "")
	if n := fetches.Load(); n != 0 {
		t.Errorf("%d fetches", n)
	}
}
