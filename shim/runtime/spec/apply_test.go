package spec

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// own is the sandbox a, on a node with two roots.
var own = Sandbox{Directory: "a", Roots: []string{"/run/headstart", "/s"}, Pins: "/bundle/headstart"}

// input is what a daemon describes for a sandbox with an input.
func input() *nodeapi.DescribeResponse {
	return &nodeapi.DescribeResponse{
		Mounts: []*nodeapi.Mount{{Source: "/run/headstart/s/a", Destination: "/headstart/input", ReadOnly: true}},
		Env:    map[string]string{"HEADSTART_INPUT_DIR": "/headstart/input", "HEADSTART_A": "1"},
	}
}

// sockets is what a daemon describes for a sandbox with sockets, and with directories of a container's own among them.
func sockets(source string, own ...string) *nodeapi.DescribeResponse {
	d := &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{{Source: source, Destination: "/headstart/socket", ReadOnly: true}}}
	for _, s := range own {
		d.Mounts = append(d.Mounts, &nodeapi.Mount{Source: s, Destination: "/headstart/socket/" + path.Base(s), ReadOnly: true})
	}
	return d
}

func TestApply(t *testing.T) {
	const bound = `{"destination":"/headstart/input","type":"bind","source":"/bundle/headstart/input","options":["bind","ro","nosuid","nodev","noexec"]}`
	tests := map[string]struct {
		config string
		d      *nodeapi.DescribeResponse
		want   string
	}{
		"nothing described": {
			config: ` {"ociVersion":"1.0.2"} `, d: &nodeapi.DescribeResponse{Traceparent: "00-aa-bb-01"},
			want: ` {"ociVersion":"1.0.2"} `,
		},
		"mounts and environment come last": {
			config: `{"process":{"args":["/fn"],"env":["PATH=/bin"]},"mounts":[{"destination":"/proc","type":"proc"}]}`,
			d:      input(),
			want: `{"process":{"args":["/fn"],"env":["PATH=/bin","HEADSTART_A=1","HEADSTART_INPUT_DIR=/headstart/input"]},
				"mounts":[{"destination":"/proc","type":"proc"},` + bound + `]}`,
		},
		"no mounts and no environment before": {
			config: `{"process":{"env":null}}`, d: input(),
			want: `{"process":{"env":["HEADSTART_A=1","HEADSTART_INPUT_DIR=/headstart/input"]},"mounts":[` + bound + `]}`,
		},
		"variables are replaced, all of them": {
			config: `{"process":{"env":["HEADSTART_A=old","X=HEADSTART_A=2","HEADSTART_A","HEADSTART_AB=3"]}}`,
			d:      &nodeapi.DescribeResponse{Env: map[string]string{"HEADSTART_A": "a=b <&>"}},
			want:   `{"process":{"env":["X=HEADSTART_A=2","HEADSTART_AB=3","HEADSTART_A=a=b <&>"]}}`,
		},
		"directory in the sandbox's own": {
			config: `{}`,
			d: &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{
				{Source: "/s/a/b", Destination: "/headstart/b", ReadOnly: true},
			}},
			want: `{"mounts":[{"destination":"/headstart/b","type":"bind","source":"/bundle/headstart/b",
				"options":["bind","ro","nosuid","nodev","noexec"]}]}`,
		},
		"descriptors are named": {
			config: `{"process":{"env":["HEADSTART_DESCRIPTORS=x"]}}`,
			d: &nodeapi.DescribeResponse{
				Descriptors: []string{"db", "cache-1"}, Env: map[string]string{"HEADSTART_A": "1"},
			},
			want: `{"process":{"env":["HEADSTART_A=1","HEADSTART_DESCRIPTORS=db:cache-1"]}}`,
		},
		"directories in that of the sockets": {
			config: `{"mounts":[{"destination":"/proc"}]}`, d: sockets("/s/a/socket", "/s/a/orders", "/s/a/sessions"),
			want: `{"mounts":[{"destination":"/proc"},{"destination":"/headstart/socket","type":"bind","source":"/bundle/headstart/socket",
				"options":["rbind","ro","nosuid","nodev","noexec"]}]}`,
		},
		"mount that is there already": {
			config: `{"mounts":[{"destination":"/headstart/input/","source":"/bundle/headstart/input"}]}`,
			d:      &nodeapi.DescribeResponse{Mounts: input().GetMounts()},
			want:   `{"mounts":[{"destination":"/headstart/input/","source":"/bundle/headstart/input"}]}`,
		},
		"what no type here knows stays": {
			config: `{"future":{"n":12345678901234567890.10,"a":[null,{}]},"process":{"later":1e400,"env":["A=\ud800"]},
				"mounts":[{"destination":"/x","idmap":true}],"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`,
			d: &nodeapi.DescribeResponse{Env: map[string]string{"HEADSTART_A": "1"}},
			want: `{"future":{"n":12345678901234567890.10,"a":[null,{}]},"process":{"later":1e400,"env":["A=\ud800","HEADSTART_A=1"]},
				"mounts":[{"destination":"/x","idmap":true}],"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Apply([]byte(tt.config), own, tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(value(t, []byte(tt.want)), value(t, got)); diff != "" {
				t.Errorf("specification (-want +got):\n%s", diff)
			}
			again, err := Apply(got, own, tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), string(again)); diff != "" {
				t.Errorf("applied twice (-once +twice):\n%s", diff)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	mount := func(source, destination string) *nodeapi.DescribeResponse {
		return &nodeapi.DescribeResponse{
			Mounts: []*nodeapi.Mount{{Source: source, Destination: destination, ReadOnly: true}},
		}
	}
	env := func(name, value string) *nodeapi.DescribeResponse {
		return &nodeapi.DescribeResponse{Env: map[string]string{name: value}}
	}
	long := strings.Repeat("a", maxValue)
	writable := mount("/s/a", "/headstart/a")
	writable.Mounts[0].ReadOnly = false
	before := sockets("/s/a", "/s/a/orders")
	slices.Reverse(before.Mounts)
	writableWithin := sockets("/s/a", "/s/a/orders")
	writableWithin.Mounts[1].ReadOnly = false
	many := &nodeapi.DescribeResponse{}
	for range maxMounts + 1 {
		many.Mounts = append(many.Mounts, input().Mounts[0])
	}
	manyEnv := &nodeapi.DescribeResponse{Env: map[string]string{}}
	for i := range maxEnv + 1 {
		manyEnv.Env["HEADSTART_"+strings.Repeat("A", i)] = ""
	}
	tests := map[string]struct {
		config string
		d      *nodeapi.DescribeResponse
		want   string
	}{
		"destination elsewhere":    {`{}`, mount("/s/a", "/etc"), "destination: does not match"},
		"destination is the root":  {`{}`, mount("/s/a", "/headstart"), "destination: does not match"},
		"destination is the root/": {`{}`, mount("/s/a", "/headstart/"), "destination: does not match"},
		"destination beside":       {`{}`, mount("/s/a", "/headstart2/x"), "destination: does not match"},
		"destination climbs":       {`{}`, mount("/s/a", "/headstart/../etc"), "destination: does not match"},
		"destination is above":     {`{}`, mount("/s/a", "/headstart/.."), "destination: does not match"},
		"destination with slash":   {`{}`, mount("/s/a", "/headstart/input/"), "destination: does not match"},
		"destination in another":   {`{}`, mount("/s/a", "/headstart/input/x"), "destination: does not match"},
		"socket without sockets":   {`{}`, mount("/s/a", "/headstart/socket/orders"), "not after the mount"},
		"socket before sockets":    {`{}`, before, "not after the mount"},
		"socket is another's":      {`{}`, sockets("/s/a", "/s/b/orders"), "not a directory of the sandbox's own"},
		"socket is a volume":       {`{}`, sockets("/s/a", "/s/volumes/media/b/files"), "not a directory of the sandbox's own"},
		"socket named oddly":       {`{}`, sockets("/s/a", "/s/a/Orders"), "does not match"},
		"socket with a dot":        {`{}`, sockets("/s/a", "/s/a/a.b"), "does not match"},
		"socket too deep":          {`{}`, mount("/s/a", "/headstart/socket/orders/x"), "does not match"},
		"socket climbs":            {`{}`, mount("/s/a", "/headstart/socket/.."), "does not match"},
		"socket without a name":    {`{}`, mount("/s/a", "/headstart/socket/"), "does not match"},
		"socket with newline":      {`{}`, mount("/s/a", "/headstart/socket/a\n"), "does not match"},
		"socket too long":          {`{}`, mount("/s/a", "/headstart/socket/"+strings.Repeat("a", 64)), "does not match"},
		"socket twice":             {`{}`, sockets("/s/a", "/s/a/orders", "/s/a/orders"), "named twice"},
		"socket of the owner's":    {`{"mounts":[{"destination":"/headstart/socket/orders"}]}`, sockets("/s/a", "/s/a/orders"), "a mount of its own"},
		"socket is writable":       {`{}`, writableWithin, "not read-only"},
		"destination relative":     {`{}`, mount("/s/a", "headstart/input"), "destination: does not match"},
		"destination empty":        {`{}`, mount("/s/a", ""), "destination: does not match"},
		"destination with NUL":     {`{}`, mount("/s/a", "/headstart/a\x00b"), "destination: does not match"},
		"destination with newline": {`{}`, mount("/s/a", "/headstart/a\n"), "destination: does not match"},
		"destination not of UTF-8": {`{}`, mount("/s/a", "/headstart/a\xff"), "destination: does not match"},
		"destination too long":     {`{}`, mount("/s/a", "/headstart/"+strings.Repeat("a", 64)), "destination: does not match"},
		"writable":                 {`{}`, writable, "not read-only"},
		"source is the node's":     {`{}`, mount("/", "/headstart/a"), "not a directory of the sandbox's own"},
		"source is a root":         {`{}`, mount("/s", "/headstart/a"), "not a directory of the sandbox's own"},
		"source is named alike":    {`{}`, mount("/etc/a", "/headstart/a"), "not a directory of the sandbox's own"},
		"source is another's":      {`{}`, mount("/s/b/input", "/headstart/a"), "not a directory of the sandbox's own"},
		"source is too deep":       {`{}`, mount("/s/a/b/c", "/headstart/a"), "not a directory of the sandbox's own"},
		"source begins alike":      {`{}`, mount("/s/a-1/input", "/headstart/a"), "not a directory of the sandbox's own"},
		"source of another root":   {`{}`, mount("/s-1/a/input", "/headstart/a"), "not a directory of the sandbox's own"},
		"source relative":          {`{}`, mount("s/a", "/headstart/a"), "source: not absolute"},
		"source climbs":            {`{}`, mount("/s/a/..", "/headstart/a"), "source: not in its shortest form"},
		"source with NUL":          {`{}`, mount("/s/a/\x00", "/headstart/a"), "source: holds a control character"},
		"source too long":          {`{}`, mount("/s/a/"+strings.Repeat("a", maxPath), "/headstart/a"), "more than 4095"},
		"destination twice":        {`{}`, &nodeapi.DescribeResponse{Mounts: append(input().Mounts, input().Mounts...)}, "named twice"},
		"mount is null":            {`{}`, &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{nil}}, "not absolute"},
		"too many mounts":          {`{}`, many, "65 mounts"},
		"mount of the owner's":     {`{"mounts":[{"destination":"/headstart//input","source":"/own"}]}`, input(), "a mount of its own"},
		"mount in the owner's way": {`{"mounts":[{"destination":"/headstart/input/own"}]}`, input(), "a mount of its own"},
		"other variable":           {`{}`, env("LD_PRELOAD", "/x.so"), "does not match"},
		"variable in lower case":   {`{}`, env("HEADSTART_a", ""), "does not match"},
		"variable with equal sign": {`{}`, env("HEADSTART_A=B", ""), "does not match"},
		"variable with newline":    {`{}`, env("HEADSTART_A\n", ""), "does not match"},
		"name too long":            {`{}`, env("HEADSTART_"+strings.Repeat("A", maxName), ""), "name of 138 bytes"},
		"value too long":           {`{}`, env("HEADSTART_A", strings.Repeat("a", maxValue+1)), "value of 32769 bytes"},
		"value with NUL":           {`{}`, env("HEADSTART_A", "a\x00"), "holds a NUL"},
		"too many variables":       {`{}`, manyEnv, "65 environment variables"},
		"too much in variables":    {`{}`, &nodeapi.DescribeResponse{Env: map[string]string{"HEADSTART_A": long, "HEADSTART_B": long}}, "environment of"},
		"descriptor's name":        {`{}`, &nodeapi.DescribeResponse{Descriptors: []string{"a:b"}}, "does not match"},
		"descriptor without one":   {`{}`, &nodeapi.DescribeResponse{Descriptors: []string{""}}, "does not match"},
		"descriptor twice":         {`{}`, &nodeapi.DescribeResponse{Descriptors: []string{"a", "a"}}, "named twice"},
		"too many descriptors":     {`{}`, &nodeapi.DescribeResponse{Descriptors: make([]string, 17)}, "17 descriptors"},
		"no JSON":                  {`mounts`, input(), "specification: invalid character"},
		"no object":                {`null`, input(), "not an object"},
		"more behind it":           {`{}{}`, input(), "specification: invalid character"},
		"no process":               {`{}`, env("HEADSTART_A", ""), "no process"},
		"environment of numbers":   {`{"process":{"env":[1]}}`, input(), "environment variable 0: not a string"},
		"mounts of strings":        {`{"mounts":["/a"]}`, input(), "mount 0"},
		"mounts are an object":     {`{"mounts":{}}`, input(), "specification: mounts"},
		"too large":                {strings.Repeat(" ", MaxConfig) + `{}`, input(), "more than 16777216"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Apply([]byte(tt.config), own, tt.d)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if got != nil {
				t.Errorf("specification %.100s beside the error", got)
			}
		})
	}
}

func TestErrorsHoldNoValues(t *testing.T) {
	_, err := Apply([]byte(`{}`), own, &nodeapi.DescribeResponse{
		Env: map[string]string{"HEADSTART_A": secret + "\x00"},
	})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error %v, want one without the variable's value", err)
	}
}

// value is a JSON text's value, numbers as they are written.
func value(t *testing.T, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
