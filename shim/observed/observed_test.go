package observed_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/distinct"
	"github.com/headstart-mesh/headstart/shim/observed"
)

func function(name string, inputs ...string) *nodeapi.Function {
	f := &nodeapi.Function{Name: name, Observed: map[string]string{}}
	for _, input := range inputs {
		f.Observed[input] = "s3://videos/{header.x-key}"
	}
	return f
}

func named(ref string) reference.Inputs { return reference.Inputs{"": ref} }

// latest are the references as they are listed.
func latest(e *nodeapi.CacheEntry) (all []string) {
	for _, r := range e.GetObserved().GetLatest() {
		all = append(all, r.GetReference())
	}
	return all
}

func TestWhatIsNoted(t *testing.T) {
	n, f, other := observed.New(), function("shop/fire", "", "mask"), function("media/other", "")
	n.Keep([]*nodeapi.Function{f, other})
	n.Unnamed(f)
	n.Named(f, reference.Inputs{"": "s3://videos/a", "mask": "s3://videos/m"})
	n.Named(f, named("s3://videos/b"))
	n.Named(f, named("s3://videos/a"))
	n.Named(f, reference.Inputs{"none": "s3://videos/a"}) // of no template
	n.Incomplete(f, "header x-key")
	n.Refused(f)
	n.Named(other, named("s3://videos/c"))

	if got := len(n.List("")); got != 3 {
		t.Errorf("of all namespaces %d inputs are listed", got)
	}
	all := n.List("shop")
	if len(all) != 2 {
		t.Fatalf("%v", all)
	}
	for i, want := range []struct {
		input              string
		requests, distinct int64
		latest             []string
	}{{"", 3, 2, []string{"s3://videos/a", "s3://videos/b"}}, {"mask", 1, 1, []string{"s3://videos/m"}}} {
		o := all[i].GetObserved()
		var s distinct.Sketch
		s.Join(o.GetSketch())
		if o.GetFunction() != "shop/fire" || o.GetInput() != want.input || o.GetRequests() != want.requests || s.Count() != want.distinct ||
			o.GetIncomplete() != 1 || o.GetField() != "header x-key" || o.GetRefused() != 1 || o.GetUnnamed() != 1 || all[i].GetReference() != "s3://videos/{header.x-key}" {
			t.Errorf("input %q: %v", want.input, all[i])
		}
		if diff := cmp.Diff(want.latest, latest(all[i])); diff != "" {
			t.Errorf("input %q (-want +got):\n%s", want.input, diff)
		}
	}
}

// Another template is another input: what the one before named says nothing about it.
func TestAChangedTemplateBeginsAgain(t *testing.T) {
	n, f := observed.New(), function("shop/fire", "")
	n.Keep([]*nodeapi.Function{f})
	n.Named(f, named("s3://videos/a"))
	changed := proto.CloneOf(f)
	changed.Observed[""] = "s3://videos/{query.key}"
	n.Keep([]*nodeapi.Function{changed})
	n.Named(f, named("s3://videos/a")) // by a request that was under way
	n.Refused(changed)
	all := n.List("")
	if len(all) != 1 || all[0].GetObserved().GetRequests() != 0 || all[0].GetObserved().GetRefused() != 1 || all[0].GetReference() != "s3://videos/{query.key}" {
		t.Errorf("%v", all)
	}
}

func TestOnlyObservedFunctionsAreKept(t *testing.T) {
	n, f, active := observed.New(), function("shop/fire", ""), function("shop/active", "")
	gone := function("shop/gone", "")
	n.Keep([]*nodeapi.Function{f, active, gone})
	n.Keep([]*nodeapi.Function{f, {Name: "shop/active", HasInput: true}})
	n.Refused(gone) // by a request that was under way
	n.Refused(active)
	if all := n.List(""); len(all) != 1 || all[0].GetObserved().GetFunction() != "shop/fire" {
		t.Errorf("%v", all)
	}
}

// Whatever requests name, the notes stay small.
func TestAttackRequestsOfAFunctionFillNoMemory(t *testing.T) {
	n, f := observed.New(), function("shop/fire", "")
	n.Keep([]*nodeapi.Function{f})
	for i := range 10_000 {
		n.Named(f, named(fmt.Sprintf("s3://videos/%d%s", i, strings.Repeat("ä", 512))))
	}
	n.Incomplete(f, "header "+strings.Repeat("x", 2000))
	e := n.List("")[0]
	if size := proto.Size(e); size > 5<<10 {
		t.Errorf("the note has %d bytes", size)
	}
	for _, ref := range latest(e) {
		if !strings.HasPrefix(ref, "s3://videos/999") || !strings.HasSuffix(ref, "ä…") || !utf8.ValidString(ref) || len(ref) > 256 {
			t.Errorf("%q", ref)
		}
	}
	if len(latest(e)) != observed.LatestMost || len(e.GetObserved().GetSketch()) != distinct.Most {
		t.Errorf("%d references and %d hashes are kept", len(latest(e)), len(e.GetObserved().GetSketch()))
	}
}

// One namespace with many functions leaves others theirs, and all together fill no memory.
func TestAttackFunctionsOfANamespaceLeaveOthersTheirs(t *testing.T) {
	n := observed.New()
	var all []*nodeapi.Function
	for i := range 2 * observed.OwnMost {
		all = append(all, function(fmt.Sprint("shop/f", i), "", "mask"))
	}
	all = append(all, function("media/fire", ""))
	n.Keep(all)
	if got := len(n.List("shop")); got != observed.OwnMost {
		t.Errorf("of one namespace %d inputs are noted", got)
	}
	if got := len(n.List("media")); got != 1 {
		t.Errorf("of another namespace %d inputs are noted", got)
	}
	for i := range 2 * observed.InputsMost {
		all = append(all, function(fmt.Sprintf("ns%d/fire", i), ""))
	}
	n.Keep(all)
	if got := len(n.List("")); got != observed.InputsMost {
		t.Errorf("of all namespaces %d inputs are noted", got)
	}
	n.Keep(nil) // then there is room again
	all = nil
	for i := range observed.OwnMost {
		all = append(all, function(fmt.Sprint("shop/g", i), ""))
	}
	n.Keep(all)
	if got := len(n.List("")); got != observed.OwnMost {
		t.Errorf("after all are gone %d inputs are noted", got)
	}
}

// What a URL asks for may have a signature.
func TestQueriesAreNotShown(t *testing.T) {
	n, f := observed.New(), function("shop/fire", "")
	n.Keep([]*nodeapi.Function{f})
	n.Named(f, named("https://store.example/a.bin?X-Amz-Signature=abc"))
	if got := latest(n.List("")[0]); len(got) != 1 || got[0] != "https://store.example/a.bin" {
		t.Errorf("%q", got)
	}
}
