package uplink

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func changeOf(c *nodeapi.FunctionChanges) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_FunctionChanges{FunctionChanges: c}}
}

// Whatever changes, in however many parts, a node knows the set that they lead to, and never a part of one.
func TestChangesLeadToTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k said
		want := map[string]*nodeapi.Function{}
		name := rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "b/2", "c/1"})
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			before := k.functions
			parts := rapid.IntRange(1, 4).Draw(t, "parts")
			for i := range parts {
				c := &nodeapi.FunctionChanges{Removed: rapid.SliceOf(name).Draw(t, "removed"), More: i < parts-1}
				for _, n := range c.GetRemoved() {
					delete(want, n)
				}
				for _, n := range rapid.SliceOf(name).Draw(t, "changed") {
					f := &nodeapi.Function{Name: n, Generation: rapid.Int64().Draw(t, "generation")}
					c.Functions, want[n] = append(c.Functions, f), f
				}
				news, whole := k.hear(changeOf(c))
				if whole == c.GetMore() || !whole && (news.functions != nil || k.functions != before) {
					t.Fatalf("part %d of %d: whole %t, %v", i, parts, whole, news.functions)
				}
			}
			sorted := slices.SortedFunc(maps.Values(want), func(a, b *nodeapi.Function) int { return cmp.Compare(a.GetName(), b.GetName()) })
			if !slices.EqualFunc(k.functions.GetFunctions(), sorted, func(a, b *nodeapi.Function) bool { return proto.Equal(a, b) }) {
				t.Fatalf("known are %v, want %v", k.functions.GetFunctions(), sorted)
			}
		}
	})
}

// What two control planes say in the same words is one object, and nothing else is changed by that.
func TestWhatTwoSayIsThereOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		functions := func(label string) (all []*nodeapi.Function) {
			name := rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "b/2", "c/1"})
			names := rapid.SliceOfDistinct(name, rapid.ID[string]).Draw(t, label)
			for _, n := range slices.Sorted(slices.Values(names)) {
				all = append(all, &nodeapi.Function{Name: n, Generation: rapid.Int64Range(1, 2).Draw(t, "generation")})
			}
			return all
		}
		ours, theirs := functions("ours"), functions("theirs")
		got := shared(slices.Clone(ours), theirs)
		for i, f := range ours {
			if !proto.Equal(got[i], f) {
				t.Errorf("%v became %v", f, got[i])
			}
			same := slices.ContainsFunc(theirs, func(other *nodeapi.Function) bool { return proto.Equal(other, f) })
			if same != slices.Contains(theirs, got[i]) {
				t.Errorf("%v is there twice: %t", f, same)
			}
		}
	})
}

// Two control planes count generations for themselves. What they say of a function otherwise is the same, and in
// memory once, whichever says it first, and again after a change.
func TestFunctionsOfTwoControlPlanesAreThereOnce(t *testing.T) {
	u := New(nil, slog.New(slog.DiscardHandler))
	u.handler = deaf{}
	for _, address := range []string{"first", "second"} {
		u.streams = append(u.streams, u.newStream(t.Context(), address, nil))
	}
	first, second := u.streams[0], u.streams[1]
	tell := func(s *stream, generation, port int32) {
		m := &nodeapi.FunctionChanges{}
		for _, name := range []string{"a/1", "a/2"} {
			m.Functions = append(m.Functions, &nodeapi.Function{Name: name, Generation: int64(generation), Port: port})
		}
		s.heard(changeOf(m))
	}
	same := func() bool {
		return slices.Equal(first.said.functions.GetFunctions(), second.said.functions.GetFunctions())
	}
	tell(first, 1, 80)
	tell(second, 7, 80)
	if !same() {
		t.Error("they are there twice")
	}
	tell(second, 8, 81)
	if same() {
		t.Error("one has changed the other's")
	}
	tell(first, 2, 81)
	if !same() {
		t.Error("after a change they are there twice")
	}
}

// deaf is a node that takes note of nothing.
type deaf struct{ Handler }

func (deaf) Functions(*nodeapi.Functions) {}
func (deaf) Keys(*nodeapi.Keys)           {}

// A control plane of the version before says the whole set each time.
func TestTheWholeSetReplacesAllChanges(t *testing.T) {
	var k said
	k.hear(changeOf(&nodeapi.FunctionChanges{Functions: []*nodeapi.Function{{Name: "a/1"}}}))
	k.hear(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: &nodeapi.Functions{Functions: []*nodeapi.Function{{Name: "b/1"}}}}})
	if f := k.functions.GetFunctions(); len(f) != 1 || f[0].GetName() != "b/1" {
		t.Errorf("known are %v", f)
	}
}

func TestSetsInParts(t *testing.T) {
	var k said
	parts := []*nodeapi.ControlMessage{
		{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Jobs: []*nodeapi.Job{{}}, More: true}}},
		{Kind: &nodeapi.ControlMessage_Triggers{Triggers: &nodeapi.Triggers{Triggers: []*nodeapi.Trigger{{}}, More: true}}},
		{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{{}, {}}, More: true}}},
	}
	for range 2 { // the second set replaces the first
		for _, m := range parts {
			if _, whole := k.hear(m); whole {
				t.Error("a part counts before the last one is there")
			}
		}
		news, _ := k.hear(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{{}}}}})
		if len(news.instances.GetInstances()) != 3 || len(news.instances.GetJobs()) != 1 || news.triggers != nil {
			t.Errorf("instances %v", news.instances)
		}
		news, _ = k.hear(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Triggers{Triggers: &nodeapi.Triggers{Triggers: []*nodeapi.Trigger{{}}}}})
		if len(news.triggers.GetTriggers()) != 2 || news.instances != nil {
			t.Errorf("triggers %v", news.triggers)
		}
	}
}

// heard notes in which order a node is told something.
type heard struct {
	Handler
	order []string
}

func (h *heard) Instances(*nodeapi.Instances) { h.order = append(h.order, "instances") }
func (h *heard) Site(*nodeapi.Site)           { h.order = append(h.order, "site") }
func (h *heard) Passes(*nodeapi.Passes)       { h.order = append(h.order, "passes") }

// What instances need a node may get from its neighbours at once.
func TestNeighboursAreKnownBeforeInstances(t *testing.T) {
	h := &heard{}
	said{instances: &nodeapi.Instances{}, site: &nodeapi.Site{}, passes: &nodeapi.Passes{}}.tell(h)
	if got := strings.Join(h.order, " "); got != "site passes instances" {
		t.Errorf("told of %s", got)
	}
}
