package prefetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference/referencetest"
	"github.com/headstart-mesh/headstart/filters/filtertest"
)

const config = `{"version":"v1","hintCluster":"headstart-hint"}`

// functions are what gateways have of functions, by the authorities that tests ask for them by.
var functions = map[string]string{
	"fire": `{"name":"shop/fire","input":"s3://{header.x-bucket}/{header.x-key}",
		"inputs":{"mask":"s3://masks/{header.x-mask}"}}`,
	"masked": `{"name":"shop/masked","input":"s3://videos/{header.x-key}",
		"inputs":{"subtitles":"s3://subtitles/{query.lang}/{header.x-key}","mask":"s3://masks/{header.x-key}.png"}}`,
	"named":   `{"name":"shop/named","inputs":{"mask":"s3://masks/{header.x-mask}"}}`,
	"fixed":   `{"name":"shop/fixed","input":"s3://models/latest.bin"}`,
	"watched": `{"name":"shop/watched","observed":{"":"s3://videos/{header.x-key}","mask":"s3://masks/{header.x-mask}"}}`,
	"plain":   `{"name":"shop/plain"}`,
	"wrong":   `{"name":"shop/wrong","input":"gs://x/y"}`,
}

// metadata is where a proxy has them: of a cluster in a mesh, else of a route.
func metadata(of string) []string {
	return []string{"xds", of, "filter_metadata", "headstart", "prefetch"}
}

// say has the proxy's routes have a function.
func say(t testing.TB, p *filtertest.Proxy, text string) {
	t.Helper()
	if err := p.SetProperty(metadata("route_metadata"), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request for the function with that authority.
func ask(t *testing.T, p *filtertest.Proxy, headers ...[2]string) filtertest.Outcome {
	t.Helper()
	if text := functions[value(headers, ":authority")]; text != "" {
		say(t, p, text)
	}
	return p.Request(headers...)
}

func start(t *testing.T, p *filtertest.Proxy) {
	t.Helper()
	if !p.StartPlugin() {
		t.Fatalf("the plugin refuses its configuration: %v", p.GetErrorLogs())
	}
}

func get(authority string, headers ...[2]string) [][2]string { return at("/", authority, headers...) }

func at(path, authority string, headers ...[2]string) [][2]string {
	return append([][2]string{{":method", "GET"}, {":path", path}, {":authority", authority}}, headers...)
}

func value(headers [][2]string, name string) string {
	for _, h := range headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

func TestRequestWithInputIsHintedAndGoesOn(t *testing.T) {
	key := [][2]string{{"x-bucket", "videos"}, {"x-key", "cam 1/überblick.mjpeg"}}
	const ref = "s3://videos/cam 1/überblick.mjpeg"
	for _, c := range []struct {
		name, authority, function, ref string
		headers                        [][2]string
		named                          string
	}{
		{"headers name the input", "fire", "shop/fire", ref, key, ""},
		{"fixed input", "fixed", "shop/fixed", "s3://models/latest.bin", nil, ""},
		{"named inputs beside it", "masked", "shop/masked", "s3://videos/ä & b",
			[][2]string{{"x-key", "ä & b"}},
			"mask=s3://masks/%C3%A4%20%26%20b.png&subtitles=s3://subtitles/en/%C3%A4%20%26%20b"},
		{
			"a named input alone", "named", "shop/named", "", [][2]string{{"x-mask", "a"}},
			"mask=s3://masks/a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				sent := at("/?lang=en", c.authority, c.headers...)
				o := ask(t, p, sent...)

				id := value(o.Headers, "x-headstart-request")
				if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
					t.Errorf("x-headstart-request is %q, want 32 lower-case hexadecimal digits", id)
				}
				own := [][2]string{{"x-headstart-request", id}}
				if c.ref != "" {
					own = append(own, [2]string{"x-headstart-input", c.ref})
				}
				if c.named != "" {
					own = append(own, [2]string{"x-headstart-inputs", c.named})
				}
				if diff := cmp.Diff(slices.Concat(sent, own), o.Headers); diff != "" {
					t.Errorf("request headers (-want +got):\n%s", diff)
				}
				if len(o.Calls) != 1 {
					t.Fatalf("%d hints, want one", len(o.Calls))
				}
				hint := []proxytest.HttpCalloutAttribute{{
					CalloutID: o.Calls[0].CalloutID,
					Upstream:  "headstart-hint",
					Headers: slices.Concat([][2]string{
						{":method", "POST"}, {":path", "/v1/hint"}, {":authority", "headstart-node"},
						{"x-headstart-function", c.function},
					}, own),
					Trailers: [][2]string{},
					Body:     []byte{},
				}}
				if diff := cmp.Diff(hint, o.Calls); diff != "" {
					t.Errorf("hints (-want +got):\n%s", diff)
				}
				if o.Action != types.ActionContinue || o.Reply != nil {
					t.Errorf("the request is held (action %v) or answered (%v)", o.Action, o.Reply)
				}
			})
		})
	}
}

// The filter makes the same of a request as the node's daemon, whose test has the same cases.
func TestReferencesAreTheDaemons(t *testing.T) {
	filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		for _, r := range referencetest.Cases {
			f := filterapi.Function{Name: "shop/f", Input: r.Template}
			text, err := f.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			say(t, p, string(text))
			sent := append([][2]string{{":method", "GET"}, {":path", r.Target}, {":authority", "f"}}, r.Header...)
			o := ask(t, p, sent...)
			if got := value(o.Headers, filterapi.HeaderInput); got != r.Want {
				t.Errorf("%s: %q, want %q", r.Name, got, r.Want)
			}
			var reply filterapi.Problem
			if o.Reply != nil {
				if err := json.Unmarshal(o.Reply.Data, &reply); err != nil {
					t.Fatal(err)
				}
			}
			if reply.Field != r.Field || !strings.Contains(reply.Detail, r.Says) {
				t.Errorf("%s: refused with %+v, want one of %s: %s", r.Name, reply, r.Field, r.Says)
			}
		}
	})
}

func TestOtherRequestsAreUntouched(t *testing.T) {
	for _, c := range []struct {
		name    string
		request [][2]string
	}{
		{"all headers of the input absent", get("fire", [2]string{"x-other", "1"})},
		{"no function", get("nobody.example", [2]string{"x-bucket", "videos"}, [2]string{"x-key", "a"})},
		{"function without input", get("plain", [2]string{"x-bucket", "videos"}, [2]string{"x-key", "a"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				o := ask(t, p, c.request...)
				want := filtertest.Outcome{Context: o.Context, Action: types.ActionContinue, Headers: c.request}
				if diff := cmp.Diff(want, o); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestMalformedReferenceIsAnsweredWithAProblem(t *testing.T) {
	for _, c := range []struct {
		name          string
		headers       [][2]string
		field, detail string
	}{
		{"one header absent", [][2]string{{"x-bucket", "videos"}}, "header x-key", "is missing"},
		{"other header absent", [][2]string{{"x-key", "a"}}, "header x-bucket", "is missing"},
		{"climbing key", [][2]string{{"x-bucket", "videos"}, {"x-key", "../../etc/shadow"}}, "header x-key", `".."`},
		{"absolute key", [][2]string{{"x-bucket", "videos"}, {"x-key", "/etc/shadow"}}, "header x-key", "slash"},
		{"slash in bucket", [][2]string{{"x-bucket", "videos/private"}, {"x-key", "a"}}, "header x-bucket", "lower-case letters"},
		{"address as bucket", [][2]string{{"x-bucket", "169.254.169.254"}, {"x-key", "a"}}, "header x-bucket", "IP address"},
		{"not UTF-8", [][2]string{{"x-bucket", "videos"}, {"x-key", "a\xff"}}, "header x-key", "UTF-8"},
		{"control characters", [][2]string{{"x-bucket", "videos"}, {"x-key", "a\tb"}}, "header x-key", "control"},
		{"endless key", [][2]string{{"x-bucket", "videos"}, {"x-key", strings.Repeat("a", 60_000)}}, "header x-key", "longer than 1024 bytes"},
		{"twice", [][2]string{{"x-bucket", "videos"}, {"x-key", "a"}, {"x-key", "b"}}, "header x-key", "more than once"},
		{
			"a named input's", [][2]string{{"x-bucket", "videos"}, {"x-key", "a"}, {"x-mask", "../a"}}, "header x-mask",
			`".."`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				o := ask(t, p, get("fire", c.headers...)...)
				if o.Reply == nil || o.Action != types.ActionPause || len(o.Calls) != 1 {
					t.Fatalf("want an answer, one message, and the request stopped; got %+v", o)
				}
				told := []proxytest.HttpCalloutAttribute{{
					CalloutID: o.Calls[0].CalloutID,
					Upstream:  "headstart-hint",
					Headers: [][2]string{ // and nothing of the header's value
						{":method", "POST"}, {":path", "/v1/refusal"}, {":authority", "headstart-node"},
						{"x-headstart-function", "shop/fire"},
						{"x-headstart-reason", "InputReferenceMalformed"}, {"x-headstart-field", c.field},
					},
					Trailers: [][2]string{},
					Body:     []byte{},
				}}
				if diff := cmp.Diff(told, o.Calls); diff != "" {
					t.Errorf("the daemon is told (-want +got):\n%s", diff)
				}
				var got filterapi.Problem
				if err := json.Unmarshal(o.Reply.Data, &got); err != nil {
					t.Fatal(err)
				}
				want := filterapi.Problem{
					Type:     "https://headstart.dev/errors#InputReferenceMalformed",
					Title:    "InputReferenceMalformed",
					Status:   400,
					Detail:   got.Detail,
					Function: "shop/fire",
					Field:    c.field,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("problem (-want +got):\n%s", diff)
				}
				if !strings.Contains(got.Detail, c.detail) {
					t.Errorf("detail %q does not say %q", got.Detail, c.detail)
				}
				if o.Reply.StatusCode != 400 || value(o.Reply.Headers, "content-type") != "application/problem+json" {
					t.Errorf("answer is %d %v", o.Reply.StatusCode, o.Reply.Headers)
				}
			})
		})
	}
}

func TestBodiesPassUnread(t *testing.T) {
	filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		o := ask(t, p, get("fire", [2]string{"x-bucket", "videos"}, [2]string{"x-key", "a"})...)
		body := []byte("a part of the body")
		for _, end := range []bool{false, true} {
			if a := p.CallOnRequestBody(o.Context, body, end); a != types.ActionContinue {
				t.Errorf("request body, end %t: action %v", end, a)
			}
			if a := p.CallOnResponseBody(o.Context, body, end); a != types.ActionContinue {
				t.Errorf("response body, end %t: action %v", end, a)
			}
		}
		if got := p.GetCurrentRequestBody(o.Context); string(got) != string(body) {
			t.Errorf("the request's body became %q", got)
		}
		p.CompleteHttpContext(o.Context)
	})
}

func TestRefusedHintIsLogged(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer [][2]string
		want   []string
	}{
		{"accepted", [][2]string{{":status", "202"}}, nil},
		{"refused", [][2]string{{":status", "503"}}, []string{`prefetch: shop/fixed: the daemon answered with status "503"`}},
		{"no answer", nil, []string{`prefetch: shop/fixed: the daemon answered with status ""`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				o := ask(t, p, get("fixed")...)
				p.CallOnHttpCallResponse(o.Calls[0].CalloutID, c.answer, nil, nil)
				if diff := cmp.Diff(c.want, p.GetWarnLogs()); diff != "" {
					t.Errorf("warnings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The emulator's proxy takes every call, so only the Go form can see one fail.
func TestRequestGoesOnWithoutAHint(t *testing.T) {
	p := filtertest.Start(t, &failingVM{}, config)
	start(t, p)
	o := ask(t, p, get("fixed")...)
	if o.Action != types.ActionContinue || value(o.Headers, "x-headstart-input") != "s3://models/latest.bin" {
		t.Errorf("outcome %+v", o)
	}
	want := []string{"prefetch: shop/fixed: telling the daemon in cluster headstart-hint: no such cluster"}
	if diff := cmp.Diff(want, p.GetWarnLogs()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestARefusalIsAnsweredWithoutTheDaemon(t *testing.T) {
	p := filtertest.Start(t, &failingVM{}, config)
	start(t, p)
	o := ask(t, p, get("fire", [2]string{"x-bucket", "videos"})...)
	if o.Action != types.ActionPause || o.Reply == nil || o.Reply.StatusCode != 400 {
		t.Errorf("outcome %+v", o)
	}
}

type failingVM struct{ types.DefaultVMContext }

func (*failingVM) NewPluginContext(uint32) types.PluginContext {
	return &plugin{dispatch: func(string, [][2]string, []byte, [][2]string, uint32, func(int, int, int)) (uint32, error) {
		return 0, errors.New("no such cluster")
	}}
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"none", ``, "reading it"},
		{"not JSON", `version: v1`, "is not one value of JSON"},
		{"newer version", `{"version":"v2","added":1}`, `version: is "v2", this filter takes "v1"`},
		{"no cluster", `{"version":"v1"}`, "hintCluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, c.config, func(t *testing.T, p *filtertest.Proxy) {
				if p.StartPlugin() {
					t.Fatal("the plugin started")
				}
				logs := p.GetErrorLogs()
				if len(logs) != 1 || !strings.HasPrefix(logs[0], "prefetch: plugin configuration: ") || !strings.Contains(logs[0], c.want) {
					t.Errorf("errors %q, want one that says %q", logs, c.want)
				}
			})
		})
	}
}

func TestRequestIDsAreUnique(t *testing.T) {
	const requests = 2000
	filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		seen := make(map[string]bool, requests)
		for range requests {
			seen[value(ask(t, p, get("fixed")...).Headers, "x-headstart-request")] = true
		}
		if len(seen) != requests {
			t.Errorf("%d different ids in %d requests", len(seen), requests)
		}
	})
}

// One function's wrong text is logged once, and is nobody else's concern.
func TestAWrongFunctionIsLoggedAndLeftAlone(t *testing.T) {
	filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		for range 3 {
			o := ask(t, p, get("wrong", [2]string{"x-key", "a"})...)
			if o.Action != types.ActionContinue || len(o.Headers) != 4 || o.Calls != nil {
				t.Errorf("outcome %+v", o)
			}
		}
		logs := p.GetWarnLogs()
		if len(logs) != 1 || !strings.Contains(logs[0], "what the gateway has of a function: input: must start with s3://") {
			t.Errorf("warnings %q", logs)
		}
		if o := ask(t, p, get("fixed")...); value(o.Headers, "x-headstart-input") != "s3://models/latest.bin" {
			t.Errorf("another function: %+v", o)
		}
	})
}

// An annotation's change takes effect with the next request, without another configuration.
func TestAChangedTemplateCounts(t *testing.T) {
	filter.Run(t, config, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		for _, bucket := range []string{"north", "south", "north"} {
			say(t, p, `{"name":"shop/f","input":"s3://`+bucket+`/{header.x-key}"}`)
			o := p.Request(get("f", [2]string{"x-key", "a"})...)
			if got := value(o.Headers, "x-headstart-input"); got != "s3://"+bucket+"/a" {
				t.Errorf("input %s, want of %s", got, bucket)
			}
		}
	})
}

// However many functions a namespace has, the filter keeps a bounded part of them, and serves all.
func TestAttackManyFunctionsDoNotGrowTheFilter(t *testing.T) {
	tab := newTable(&filterapi.Config{HintCluster: "headstart-hint"})
	long := strings.Repeat("a", 1000)
	for i := range 10_000 {
		f, err := tab.function(fmt.Sprintf(`{"name":"evil/f%d","input":"s3://videos/%s"}`, i, long))
		if err != nil || f.name != fmt.Sprintf("evil/f%d", i) {
			t.Fatalf("function %d: %+v, %v", i, f, err)
		}
	}
	bytes := 0
	for text := range tab.known {
		bytes += len(text)
	}
	if bytes > maxKnownBytes || bytes == 0 {
		t.Fatalf("%d functions of %d bytes are kept", len(tab.known), bytes)
	}
}

// meshConfig is the configuration of a gateway whose routes are a mesh's.
const meshConfig = `{"version":"v1","hintCluster":"headstart-hints","ingressEndpoint":"/run/ingress.sock"}`

func TestInAMeshTheClusterNamesTheFunction(t *testing.T) {
	const text = `{"name":"shop/fire","input":"s3://videos/{header.x-key}"}`
	key := [2]string{"x-key", "a"}
	fire, endpoint := [2]string{"x-headstart-function", "shop/fire"}, [2]string{"x-headstart-endpoint", "/run/ingress.sock"}
	for _, c := range []struct {
		name, of     string
		headers, set [][2]string
		input        bool
	}{
		{"with an input", "cluster_metadata", [][2]string{key}, [][2]string{fire, endpoint}, true},
		{"the request has no input", "cluster_metadata", nil, [][2]string{fire, {"x-headstart-endpoint", "any"}}, false},
		{"what a route says does not count", "route_metadata", [][2]string{key}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter.Run(t, meshConfig, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				if err := p.SetProperty(metadata(c.of), []byte(text)); err != nil {
					t.Fatal(err)
				}
				sent := get("video.example", c.headers...)
				o := p.Request(sent...)
				want := slices.Clone(sent)
				if c.input {
					want = append(want, [2]string{"x-headstart-request", value(o.Headers, "x-headstart-request")}, [2]string{"x-headstart-input", "s3://videos/a"})
				}
				want = append(want, c.set...)
				if diff := cmp.Diff(want, o.Headers); diff != "" {
					t.Errorf("request headers (-want +got):\n%s", diff)
				}
				if hinted := len(o.Calls) == 1; hinted != c.input {
					t.Errorf("hints: %+v", o.Calls)
				}
			})
		})
	}
}

// BenchmarkOtherFunction is the price of the filter for requests that it has nothing to do with, and
// BenchmarkFunction for those of a function that it has read before, without the crossing into Wasm.
func BenchmarkOtherFunction(b *testing.B) { benchmark(b, "") }

func BenchmarkFunction(b *testing.B) { benchmark(b, functions["fire"]) }

func benchmark(b *testing.B, text string) {
	p := filtertest.Start(b, &VM{}, config)
	if !p.StartPlugin() {
		b.Fatal("the plugin refuses its configuration")
	}
	if text != "" {
		say(b, p, text)
	}
	headers := get("video.example:8080")
	b.ReportAllocs()
	for b.Loop() {
		id := p.InitializeHttpContext()
		p.CallOnRequestHeaders(id, headers, true)
		p.CompleteHttpContext(id)
	}
}
