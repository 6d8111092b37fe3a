package local

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const gigabyte = 1_000_000_000

func TestBest(t *testing.T) {
	at := func(node string, instances int, missing int64) candidate {
		return candidate{node: node, instances: instances, missing: missing, room: math.MaxInt64}
	}
	gateway := func(c candidate) candidate { c.gateway = true; return c }
	room := func(c candidate, bytes int64) candidate { c.room = bytes; return c }
	for name, tt := range map[string]struct {
		want string
		all  []candidate
	}{
		"the gateway's node, whatever it runs":     {"b", []candidate{at("a", 0, 0), gateway(at("b", 90, 0))}},
		"who has the volume":                       {"a", []candidate{at("a", 0, 0), gateway(at("b", 0, gigabyte))}},
		"who has it, with others there":            {"a", []candidate{at("a", 7, 0), gateway(at("b", 0, gigabyte))}},
		"a queue is longer than the transfer":      {"b", []candidate{at("a", 9, 0), gateway(at("b", 0, gigabyte))}},
		"a few bytes are less than an instance":    {"b", []candidate{at("a", 1, 0), gateway(at("b", 0, gigabyte/100))}},
		"of two that lack it the gateway's":        {"c", []candidate{at("a", 31, 0), at("b", 0, 90*gigabyte), gateway(at("c", 0, 90*gigabyte))}},
		"fewer missing bytes, where both are many": {"b", []candidate{at("a", 2, 90*gigabyte), at("b", 2, 10*gigabyte)}},
		"the gateway's disk is full":               {"a", []candidate{at("a", 50, gigabyte), room(gateway(at("b", 0, gigabyte)), gigabyte-1)}},
		"all disks are full":                       {"b", []candidate{room(at("a", 3, gigabyte), 1), room(gateway(at("b", 0, gigabyte)), 0)}},
		"a full disk that has it":                  {"a", []candidate{room(at("a", 0, 0), 0), gateway(at("b", 0, gigabyte))}},
		"no gateway: the fewest instances":         {"c", []candidate{at("a", 1, 0), at("b", 2, 0), at("c", 0, 0)}},
		"a lie about all the bytes there are":      {"b", []candidate{at("a", 0, math.MaxInt64), at("b", 30, 0)}},
		"a lie, believed as far as 30 instances":   {"a", []candidate{at("a", 0, math.MaxInt64), at("b", 31, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			for range len(tt.all) { // in whatever order they come
				tt.all = append(tt.all[1:], tt.all[0])
				if got := best(tt.all); got != tt.want {
					t.Errorf("placed on %s, want %s", got, tt.want)
				}
			}
		})
	}
}

var candidates = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) candidate {
	return candidate{instances: rapid.IntRange(0, 100).Draw(t, "instances"),
		missing: rapid.Int64Range(0, 10*gigabyte).Draw(t, "missing"), room: rapid.Int64Range(0, 20*gigabyte).Draw(t, "room")}
}), 1, 8)

// A start leaves the gateway's node only for less to fetch, or for room, and has no node with room passed over for one
// without.
func TestAStartLeavesTheGatewaysNodeForAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := candidates.Draw(t, "nodes")
		for i := range all {
			all[i].node = strconv.Itoa(i)
		}
		all[0].gateway = rapid.Bool().Draw(t, "gateway")
		name := best(all)
		chosen := all[slices.IndexFunc(all, func(c candidate) bool { return c.node == name })]
		fits := func(c candidate) bool { return c.missing <= c.room }
		if !fits(chosen) && slices.ContainsFunc(all, fits) {
			t.Errorf("%+v has no room, and others have", chosen)
		}
		if from := all[0]; from.gateway && !chosen.gateway && fits(from) && chosen.missing >= from.missing {
			t.Errorf("left %+v for %+v", from, chosen)
		}
	})
}

// However large the volume is that one node has, and whatever came before: nodes without gateway get no more than 30
// instances more than others that have room, and one.
func TestStartsDoNotPileUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := candidates.Draw(t, "nodes")
		for i := range all {
			all[i] = candidate{node: strconv.Itoa(i), missing: all[i].missing * 10, room: math.MaxInt64}
		}
		for range rapid.IntRange(1, 500).Draw(t, "starts") {
			name := best(all)
			i := slices.IndexFunc(all, func(c candidate) bool { return c.node == name })
			all[i].instances++
			if rapid.Bool().Draw(t, "fetched") {
				all[i].missing = 0
			}
		}
		by := func(a, b candidate) int { return cmp.Compare(a.instances, b.instances) }
		if most, least := slices.MaxFunc(all, by), slices.MinFunc(all, by); most.instances-least.instances > int(waitMost/perInstance)+1 {
			t.Errorf("%+v and %+v", most, least)
		}
	})
}

// What nodes say that they keep decides, if it is of the function's namespace, store and prefix.
func TestPlacementPrefersWhoHasTheVolumes(t *testing.T) {
	kept := func(namespace, store, prefix string, bytes int64) *nodeapi.KeptVolume {
		return &nodeapi.KeptVolume{Namespace: namespace, Store: store, Prefix: prefix, Bytes: bytes}
	}
	has := func(all ...*nodeapi.KeptVolume) *nodeapi.Keeps {
		return &nodeapi.Keeps{Room: 9 * gigabyte, Volumes: all}
	}
	llama := kept("default", "default", "s3://models/llama/", 4*gigabyte)
	for name, tt := range map[string]struct {
		keeps map[string]*nodeapi.Keeps
		want  string
	}{
		"nobody says anything":          {nil, "edge"},
		"nobody has it":                 {map[string]*nodeapi.Keeps{"cloud": has(), "edge": has()}, "edge"},
		"another node has it":           {map[string]*nodeapi.Keeps{"cloud": has(llama), "edge": has()}, "cloud"},
		"both have it":                  {map[string]*nodeapi.Keeps{"cloud": has(llama), "edge": has(llama)}, "edge"},
		"one has all but a few objects": {map[string]*nodeapi.Keeps{"cloud": has(llama), "edge": has(kept("default", "default", "s3://models/llama/", 3_999_999_999))}, "edge"},
		"one of an earlier version":     {map[string]*nodeapi.Keeps{"cloud": has(llama)}, "cloud"},
		"it is another namespace's":     {map[string]*nodeapi.Keeps{"cloud": has(kept("other", "default", "s3://models/llama/", gigabyte))}, "edge"},
		"it is another store's":         {map[string]*nodeapi.Keeps{"cloud": has(kept("default", "other", "s3://models/llama/", gigabyte))}, "edge"},
		"a node that has left has it":   {map[string]*nodeapi.Keeps{"gone": has(llama), "edge": has(), "cloud": has()}, "edge"},
		"no room at the gateway":        {map[string]*nodeapi.Keeps{"gone": has(llama), "edge": {Room: gigabyte}, "cloud": has()}, "cloud"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Join("edge")
				w.Join("cloud")
				w.keeps = tt.keeps
				f := fireFunction()
				volumes, err := reference.ParseVolumes("models=s3://models/llama/")
				if err != nil {
					t.Fatal(err)
				}
				f.Policy.Volumes = policy.Volumes{Store: "default", List: volumes}
				w.Deploy(f)
				if in := w.activate(fire, "edge"); in.Node != tt.want {
					t.Errorf("placed on %s, want %s", in.Node, tt.want)
				}
			})
		})
	}
}
