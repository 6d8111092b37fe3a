package nodes

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// What a node says of its gateways and stores reaches an operator's terminal in lines of bounded length.
func FuzzProblems(f *testing.F) {
	for _, m := range []proto.Message{
		&nodeapi.GatewayRefusals{Refusals: []*nodeapi.GatewayRefusal{{TypeUrl: "a/b.Cluster", Resources: []string{"default/a"}, Words: "no\x1b[2J"}}, More: 3},
		&nodeapi.GatewayRefusals{Refusals: []*nodeapi.GatewayRefusal{{Words: strings.Repeat("w", 10_000)}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var refused nodeapi.GatewayRefusals
		var lacks nodeapi.StoreProblems
		var misses nodeapi.DestinationProblems
		var kept nodeapi.Keeps
		st := &stream{process: process{node: "edge"}}
		s := &Server{joined: map[string][]*stream{"edge": {st}}}
		if proto.Unmarshal(data, &refused) == nil {
			s.refuses(st, &refused)
		}
		if proto.Unmarshal(data, &lacks) == nil {
			s.lacks(st, &lacks)
		}
		if proto.Unmarshal(data, &misses) == nil {
			s.misses(st, &misses)
		}
		var said []string
		if proto.Unmarshal(data, &kept) == nil {
			s.keeps(st, &kept)
			said = s.Keeps()["edge"].GetProblems()
		}
		for _, p := range s.Refusals() {
			said = append(said, p.Function, p.Message)
		}
		for _, p := range s.StoreProblems()["edge"] {
			said = append(said, p.Store, p.Message)
		}
		for _, p := range s.DestinationProblems()["edge"] {
			said = append(said, p.Destination, p.Message)
		}
		for _, words := range said {
			if !utf8.ValidString(words) || strings.ContainsFunc(words, unicode.IsControl) || len(words) > 16*wordsMost {
				t.Errorf("%.200q of %d bytes", words, len(words))
			}
		}
	})
}
