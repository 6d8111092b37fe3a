package gateway

import (
	"testing"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// What an Envoy says of its build is words for an operator, or nothing.
func FuzzBuild(f *testing.F) {
	for _, n := range []*core.Node{
		{Id: "edge", UserAgentName: "envoy", Extensions: []*core.Extension{{Name: "envoy.filters.http.wasm", Category: "envoy.filters.http"}}},
		{UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: "1"}},
		{},
	} {
		b, err := proto.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var node core.Node
		if proto.Unmarshal(data, &node) != nil {
			return
		}
		problem, wasm := Config{}.Problem(&node)
		if !wasm && problem == "" || !utf8.ValidString(problem) || len(problem) > 1<<10 {
			t.Errorf("%v: %.200q, %v", &node, problem, wasm)
		}
	})
}
