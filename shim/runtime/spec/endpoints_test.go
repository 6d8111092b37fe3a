package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	secret = "s3cret"
	at     = "127.0.0.1:40123"
	// ofS3 is the annotation of a container that asks for a store, and network its network namespace.
	ofS3    = `"annotations":{"headstart.dev/s3":"edge"}`
	network = `"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/x"},{"type":"mount"}]}`
)

// withS3 is a sandbox on whose loopback the shim listens.
var withS3 = Sandbox{Directory: "a", Roots: []string{"/s"}, Pins: "/bundle/headstart",
	Endpoints: map[string]string{"s3": at}}

// s3 is what a daemon describes for a container that asks for a store.
func s3() *nodeapi.DescribeResponse {
	return &nodeapi.DescribeResponse{Endpoints: []*nodeapi.Endpoint{{Name: "s3", Env: map[string]string{
		"AWS_ENDPOINT_URL_S3":                "http://{address}",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://{address}/credentials?of={address}",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN":  secret,
		"AWS_REGION":                         "eu-central-1",
		"AWS_DEFAULT_REGION":                 "eu-central-1",
	}}}}
}

func endpoint(name, variable, value string) *nodeapi.DescribeResponse {
	return &nodeapi.DescribeResponse{Endpoints: []*nodeapi.Endpoint{{Name: name,
		Env: map[string]string{variable: value}}}}
}

// process is a specification with an environment.
func process(t *testing.T, env ...string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"process": map[string]any{"env": env}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// environment is that of a specification.
func environment(t *testing.T, config []byte) (env []string) {
	t.Helper()
	var spec struct{ Process struct{ Env []string } }
	if err := json.Unmarshal(config, &spec); err != nil {
		t.Fatal(err)
	}
	return spec.Process.Env
}

// A container with a way of its own to S3, or with the node's network, goes without the endpoint, and it is known why.
func TestContainersThatAreLeftAlone(t *testing.T) {
	one := func(env ...string) string {
		return process(t, env...)[:len(process(t, env...))-1] + "," + ofS3 + "," + network + "}"
	}
	type want struct {
		s3, network, left string
		fails             bool
	}
	is := want{s3: "edge", network: "/run/netns/x"}
	left := func(why string) want { return want{s3: is.s3, network: is.network, left: why} }
	onNode := want{s3: "edge", left: "hostNetwork"}
	tests := map[string]struct {
		config string
		want   want
	}{
		"none of its own": {one("PATH=/bin"), is},
		"no environment":  {`{"process":{},` + ofS3 + "," + network + "}", is},
		"no process":      {"{" + ofS3 + "," + network + "}", is},
		"other variables of AWS": {
			one("AWS_REGION=eu", "AWS_SESSION_TOKEN=x", "AWS_ROLE_ARN=x", "AWS_ENDPOINT_URL_SQS=x"), is,
		},
		"a variable in lower case":  {one("aws_access_key_id=x"), is},
		"a variable with more":      {one("AWS_ACCESS_KEY_ID_OLD=x", "X=AWS_ACCESS_KEY_ID=x"), is},
		"variables without a value": {one("AWS_ACCESS_KEY_ID=", "AWS_PROFILE"), is},
		"the last one counts":       {one("AWS_PROFILE=x", "AWS_PROFILE="), is},
		"also when it has a value":  {one("AWS_PROFILE=", "AWS_PROFILE=x"), left("AWS_PROFILE")},
		"no annotation": {
			`{"process":{"env":["AWS_PROFILE=x"]},` + network + "}", want{network: is.network},
		},
		"an empty annotation": {
			`{"annotations":{"headstart.dev/s3":""},` + network + "}", want{network: is.network},
		},
		"pause container": {
			`{"annotations":{"headstart.dev/s3":"edge","io.kubernetes.cri.container-type":"sandbox"},` + network + "}",
			want{network: is.network},
		},
		"hostNetwork":                 {`{"linux":{"namespaces":[{"type":"pid","path":"/x"}]},` + ofS3 + "}", onNode},
		"no namespaces":               {"{" + ofS3 + "}", onNode},
		"a namespace without a path":  {`{"linux":{"namespaces":[{"type":"network"}]},` + ofS3 + "}", onNode},
		"an environment of numbers":   {`{"process":{"env":[1]},` + ofS3 + "}", want{fails: true}},
		"a process that is a text":    {`{"process":"x",` + ofS3 + "}", want{fails: true}},
		"the same without the store":  {`{"process":{"env":[1]}}`, want{}},
		"namespaces that are objects": {`{"linux":{"namespaces":{}},` + ofS3 + "}", want{fails: true}},
		"its own, and hostNetwork": {
			`{"process":{"env":["AWS_PROFILE=x"]},` + ofS3 + "}", want{s3: "edge", left: "AWS_PROFILE"},
		},
	}
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		tests[name] = struct {
			config string
			want   want
		}{one("PATH=/bin", name+"=x"), left(name)}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := Read([]byte(tt.config))
			got := want{s3: f.S3, network: f.Network, left: f.Left["s3"], fails: err != nil}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if len(f.Left) > 1 || len(f.Left) == 1 && f.Left["s3"] == "" {
				t.Errorf("it is left alone with %v", f.Left)
			}
		})
	}
}

// What is wrong with a specification is all that is known of it.
func TestFactsComeWithoutAnError(t *testing.T) {
	f, err := Read([]byte(`{"process":1,"linux":{"cgroupsPath":"a.slice:b:c"},"annotations":{` +
		`"headstart.dev/s3":"edge","io.kubernetes.cri.sandbox-namespace":"a",` +
		`"io.kubernetes.cri.sandbox-name":"b","io.kubernetes.cri.sandbox-uid":"c"}}`))
	if diff := cmp.Diff(Facts{}, f, cmpopts.IgnoreUnexported(nodeapi.Pod{})); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The shim listens for what a container asks for, and no more often than once.
func TestCheckEndpoints(t *testing.T) {
	asks := Facts{S3: "edge"}
	for name, tt := range map[string]struct {
		of    Facts
		names []string
		want  string
	}{
		"none":                  {of: asks},
		"none asked for":        {},
		"asked for":             {of: asks, names: []string{"s3"}},
		"asked for once":        {asks, []string{"s3", "s3"}, `endpoint "s3": named twice`},
		"not asked for":         {Facts{}, []string{"s3"}, `endpoint "s3": the container does not ask for it`},
		"unknown":               {asks, []string{"s4"}, `endpoint "s4": the container does not ask for it`},
		"the store's name":      {asks, []string{"edge"}, `endpoint "edge": the container does not ask for it`},
		"unknown after another": {asks, []string{"s3", "../s3"}, `endpoint "../s3": the container does not ask for it`},
		"without a name":        {asks, []string{""}, `endpoint "": the container does not ask for it`},
		"with a long name": {
			asks, []string{strings.Repeat("a", 1000)}, `endpoint "` + strings.Repeat("a", 100) + `": the`,
		},
	} {
		var all []*nodeapi.Endpoint
		for _, e := range tt.names {
			all = append(all, &nodeapi.Endpoint{Name: e})
		}
		err := tt.of.CheckEndpoints(all)
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestASandboxIsThePodsOrTheContainers(t *testing.T) {
	if got := (Facts{}).SandboxID("a"); got != "a" {
		t.Errorf("a container of no pod is in the sandbox %q", got)
	}
	f := Facts{Pod: &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1", Container: "fire"}}
	if got := f.SandboxID("a"); got != "default_fire-x_u-1" {
		t.Errorf("a pod's container is in the sandbox %q", got)
	}
}

func TestApplyEndpoints(t *testing.T) {
	told := []string{"AWS_CONTAINER_AUTHORIZATION_TOKEN=" + secret,
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://" + at + "/credentials?of=" + at}
	region, def, url := "AWS_REGION=eu-central-1", "AWS_DEFAULT_REGION=eu-central-1", "AWS_ENDPOINT_URL_S3=http://"+at
	all := slices.Concat(told, []string{def, url, region})
	// with is what is told after other variables, by name.
	with := func(before []string, more ...string) []string {
		added := slices.Concat(all, more)
		slices.Sort(added)
		return slices.Concat(before, added)
	}
	type lists struct{ upper, lower string }
	tests := map[string]struct {
		env  []string
		want []string
		d    *nodeapi.DescribeResponse // nil: s3
	}{
		"no environment":      {want: all},
		"variables come last": {env: []string{"PATH=/bin"}, want: with([]string{"PATH=/bin"})},
		"an endpoint that says nothing": {
			env: []string{"PATH=/bin"}, want: []string{"PATH=/bin"},
			d: &nodeapi.DescribeResponse{Endpoints: []*nodeapi.Endpoint{{Name: "s3"}}},
		},
		"an address at another place": {
			want: []string{"AWS_REGION={Address}" + at}, d: endpoint("s3", "AWS_REGION", "{Address}{address}"),
		},
		"a value that is empty": {want: []string{"AWS_REGION="}, d: endpoint("s3", "AWS_REGION", "")},
		"a region of its own": {
			env:  []string{"AWS_REGION=us-east-1"},
			want: slices.Concat([]string{"AWS_REGION=us-east-1"}, told, []string{url}),
		},
		"both regions of its own": {
			env:  []string{"AWS_REGION=a", "AWS_DEFAULT_REGION=b"},
			want: slices.Concat([]string{"AWS_REGION=a", "AWS_DEFAULT_REGION=b"}, told, []string{url}),
		},
		"a region without a value": {env: []string{"AWS_REGION="}, want: all},
		"the same region":          {env: []string{"AWS_REGION=eu-central-1"}, want: all},
		"only offered, and there": {
			env: []string{"AWS_REGION=a"}, want: []string{"AWS_REGION=a"}, d: endpoint("s3", "AWS_REGION", "b"),
		},
		"empty ones of its own": {
			env: []string{"AWS_ENDPOINT_URL_S3=", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}, want: all,
		},
		"a proxy for TLS only": {
			env:  []string{"HTTPS_PROXY=p", "https_proxy=p", "NO_PROXY=a"},
			want: with([]string{"HTTPS_PROXY=p", "https_proxy=p", "NO_PROXY=a"}),
		},
		"no proxy, but a list":    {env: []string{"NO_PROXY=a"}, want: with([]string{"NO_PROXY=a"})},
		"a proxy without a value": {env: []string{"HTTP_PROXY="}, want: with([]string{"HTTP_PROXY="})},
		"variables of Headstart": {
			env: []string{"HEADSTART_A=0"}, want: with(nil, "HEADSTART_A=1"),
			d: &nodeapi.DescribeResponse{Env: map[string]string{"HEADSTART_A": "1"}, Endpoints: s3().GetEndpoints()},
		},
	}
	for _, proxy := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		for name, tt := range map[string]struct {
			has  []string
			want lists
		}{
			"alone":             {nil, lists{at[:9], at[:9]}},
			"with both lists":   {[]string{"NO_PROXY=a,b", "no_proxy=c"}, lists{"a,b,127.0.0.1", "c,127.0.0.1"}},
			"with a list of it": {[]string{"NO_PROXY=127.0.0.1,a"}, lists{"127.0.0.1,a", "127.0.0.1,a"}},
			"with another host": {
				[]string{"NO_PROXY=127.0.0.10"}, lists{"127.0.0.10,127.0.0.1", "127.0.0.10,127.0.0.1"},
			},
			// Programs look at one of the two first: what is in the other one has to be in that, too.
			"with a list in upper case": {[]string{"NO_PROXY=.in"}, lists{".in,127.0.0.1", ".in,127.0.0.1"}},
			"with a list in lower case": {[]string{"no_proxy=.in"}, lists{".in,127.0.0.1", ".in,127.0.0.1"}},
			"with an empty list":        {[]string{"NO_PROXY=", "no_proxy=a"}, lists{"a,127.0.0.1", "a,127.0.0.1"}},
			// curl and Python know an asterisk only if it is alone.
			"for no host": {[]string{"NO_PROXY=*"}, lists{"*", "*"}},
		} {
			own := proxy + "=http://proxy:3128"
			tests[proxy+" "+name] = struct {
				env  []string
				want []string
				d    *nodeapi.DescribeResponse
			}{
				env:  append([]string{own}, tt.has...),
				want: with([]string{own}, "NO_PROXY="+tt.want.upper, "no_proxy="+tt.want.lower),
			}
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.d == nil {
				tt.d = s3()
			}
			before := tt.d.String()
			got, err := Apply([]byte(process(t, tt.env...)), withS3, tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, environment(t, got)); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
			again, err := Apply(got, withS3, tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), string(again)); diff != "" {
				t.Errorf("applied twice (-once +twice):\n%s", diff)
			}
			if tt.d.String() != before {
				t.Errorf("the description is changed to %v", tt.d)
			}
		})
	}
}

// An endpoint needs a process to tell it to, and changes nothing else.
func TestEndpointsChangeTheEnvironmentOnly(t *testing.T) {
	config := `{"future":{"n":12345678901234567890.10},"process":{"args":["/fn"],"later":1e400},"mounts":null,` +
		network + "}"
	got, err := Apply([]byte(config), withS3, endpoint("s3", "AWS_REGION", "x"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(config, `"later":1e400`, `"later":1e400,"env":["AWS_REGION=x"]`, 1)
	if diff := cmp.Diff(value(t, []byte(want)), value(t, got)); diff != "" {
		t.Errorf("specification (-want +got):\n%s", diff)
	}
}

// A compromised daemon sets nothing in a program's environment but what tells it of an endpoint where the shim
// listens.
func TestAttackOfTheDaemonByEndpoints(t *testing.T) {
	both := s3()
	both.Env = map[string]string{"HEADSTART_A": "1", "AWS_REGION": "x"}
	hidden := s3()
	hidden.Endpoints = append(hidden.Endpoints, &nodeapi.Endpoint{Name: "s4"})
	beside := s3()
	beside.Endpoints[0].Env["LD_PRELOAD"] = "/x.so"
	most := strings.Repeat("a", maxValue)
	long := endpoint("s3", "AWS_REGION", most)
	long.Env = map[string]string{"HEADSTART_A": most}
	nobody := withS3
	nobody.Endpoints = nil
	others := withS3
	others.Endpoints = map[string]string{"s4": at}
	tests := map[string]struct {
		sb   Sandbox
		d    *nodeapi.DescribeResponse
		want string
	}{
		"another endpoint":      {withS3, endpoint("s4", "AWS_REGION", "x"), `endpoint "s4": not an endpoint`},
		"a listener of another": {others, endpoint("s4", "AWS_REGION", "x"), `endpoint "s4": not an endpoint`},
		"one beside it":         {withS3, hidden, `endpoint "s4": not an endpoint`},
		"in upper case":         {withS3, endpoint("S3", "AWS_REGION", "x"), `endpoint "S3": not an endpoint`},
		"without a name":        {withS3, endpoint("", "AWS_REGION", "x"), `endpoint "": not an endpoint`},
		"null": {
			withS3, &nodeapi.DescribeResponse{Endpoints: []*nodeapi.Endpoint{nil}}, `endpoint "": not an endpoint`,
		},
		"nobody listens":           {nobody, s3(), `endpoint "s3": nobody listens`},
		"a listener elsewhere":     {others, s3(), `endpoint "s3": nobody listens`},
		"one among others":         {withS3, beside, `environment variable "LD_PRELOAD"`},
		"as a variable of its own": {withS3, both, `environment variable "AWS_REGION": name does not match`},
		"a name with a value":      {withS3, endpoint("s3", "AWS_REGION=x\nPATH", "/x"), "not one of the endpoint's"},
		"a name with NUL":          {withS3, endpoint("s3", "AWS_REGION\x00", "x"), "not one of the endpoint's"},
		"a value with NUL": {
			withS3, endpoint("s3", "AWS_REGION", secret+"\x00LD_PRELOAD=/x.so"), "AWS_REGION: value holds a NUL",
		},
		"a value that is too long": {
			withS3, endpoint("s3", "AWS_REGION", secret+strings.Repeat("a", maxValue)), "more than 32768",
		},
		"too much in all": {withS3, long, "environment of"},
	}
	for _, name := range []string{"LD_PRELOAD", "PATH", "BASH_ENV", "HEADSTART_A", "AWS_ACCESS_KEY_ID",
		"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CONFIG_FILE",
		"AWS_CA_BUNDLE", "HTTP_PROXY", "NO_PROXY", "no_proxy", "", "aws_region", " AWS_REGION"} {
		tests["the variable "+name] = struct {
			sb   Sandbox
			d    *nodeapi.DescribeResponse
			want string
		}{withS3, endpoint("s3", name, secret), fmt.Sprintf("environment variable %q: not one of the endpoint's", name)}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Apply([]byte(process(t, "PATH=/bin", "HTTP_PROXY=p")), tt.sb, tt.d)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("error %v, want one with %q and without a value", err, tt.want)
			}
			if got != nil {
				t.Errorf("specification %.100s beside the error", got)
			}
		})
	}
	for name, config := range map[string]string{"no process": `{}`, "environment of numbers": `{"process":{"env":[1]}}`,
		"environment of an object": `{"process":{"env":{}}}`, "process of a number": `{"process":1}`} {
		if got, err := Apply([]byte(config), withS3, s3()); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The directory of the outputs is the shim's word, not the daemon's. It is for data as well, but a program can write there.
func TestOutput(t *testing.T) {
	sb := withS3
	sb.Output = "/run/containerd/pause/headstart-output"
	config := `{"process":{"env":["HEADSTART_OUTPUT_DIR=x"]},"mounts":[{"destination":"/proc","type":"proc"}],` + network + "}"
	got, err := Apply([]byte(config), sb, s3())
	if err != nil {
		t.Fatal(err)
	}
	var has struct {
		Process struct{ Env []string }
		Mounts  []mount
	}
	if err := json.Unmarshal(got, &has); err != nil {
		t.Fatal(err)
	}
	want := []mount{{Destination: "/proc", Type: "proc"}, {Destination: "/headstart/output", Type: "bind", Source: sb.Output,
		Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}}}
	if diff := cmp.Diff(want, has.Mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if !slices.Contains(has.Process.Env, "HEADSTART_OUTPUT_DIR=/headstart/output") || slices.Contains(has.Process.Env, "HEADSTART_OUTPUT_DIR=x") {
		t.Errorf("environment %q", has.Process.Env)
	}
	again, err := Apply(got, sb, s3())
	if diff := cmp.Diff(string(got), string(again)); diff != "" || err != nil {
		t.Errorf("applied twice: %v (-once +twice):\n%s", err, diff)
	}
	for _, own := range []string{"/headstart/output", "/headstart/output/tmp"} {
		config := `{"process":{},"mounts":[{"destination":"` + own + `","source":"/mine"}]}`
		if got, err := Apply([]byte(config), sb, s3()); err != nil || bytes.Contains(got, []byte(sb.Output)) ||
			bytes.Contains(got, []byte("HEADSTART_OUTPUT_DIR")) || !bytes.Contains(got, []byte("AWS_ENDPOINT_URL_S3")) {
			t.Errorf("%s: %v, %s", own, err, got)
		}
	}
	d := s3()
	d.Mounts = []*nodeapi.Mount{{Source: "/s/" + sb.Directory, Destination: "/headstart/output", ReadOnly: true}}
	if _, err := Apply([]byte(`{"process":{}}`), sb, d); err == nil {
		t.Error("the daemon mounts something there as well")
	}
}

// The limit of memory is the container's, as runc takes it.
func TestMemoryLimit(t *testing.T) {
	for resources, want := range map[string]int64{``: 0, `"resources":{"memory":{"limit":1073741824}}`: 1 << 30,
		`"resources":{"memory":{"limit":-1}}`: 0, `"resources":{"cpu":{"shares":2}}`: 0, `"resources":null`: 0} {
		f, err := Read([]byte(`{"linux":{` + resources + `}}`))
		if err != nil || f.Memory != want {
			t.Errorf("%s: %d, %v, want %d", resources, f.Memory, err, want)
		}
	}
}
