package trust

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `{"Action":"start","Package":"github.com/headstart-mesh/headstart/shim/a"}
{"Action":"output","Package":"github.com/headstart-mesh/headstart/shim/a","Test":"TestOne","Output":"    a_test.go:1: {\"fair_cold_p99_ratio\": 1.5}\n"}
{"Action":"pass","Package":"github.com/headstart-mesh/headstart/shim/a","Test":"TestOne/a_path"}
{"Action":"pass","Package":"github.com/headstart-mesh/headstart/shim/a","Test":"TestOne"}
{"Action":"output","Package":"github.com/headstart-mesh/headstart/shim/a","Output":"ok  \tshim/a\t0.1s\n"}
{"Action":"pass","Package":"github.com/headstart-mesh/headstart/shim/a"}
{"Action":"output","Package":"github.com/headstart-mesh/headstart/shim/b","Test":"TestTwo","Output":"why\n"}
{"Action":"fail","Package":"github.com/headstart-mesh/headstart/shim/b","Test":"TestTwo"}
{"Action":"skip","Package":"github.com/headstart-mesh/headstart/shim/b","Test":"TestThree"}
{"Action":"fail","Package":"github.com/headstart-mesh/headstart/shim/b"}
`

// An attack that was not tried is an error, and not one that was not won.
func TestWhatIsNotRunIsNoDefence(t *testing.T) {
	var said bytes.Buffer
	seen, err := Read(strings.NewReader(output), false, &said)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("ok  \tshim/a\t0.1s\nwhy\n", said.String()); d != "" {
		t.Errorf("-want +said\n%s", d)
	}
	points, figures, err := Judge([]Attack{
		{Client, Speech, "shim/a", "TestOne/a path", ""}, {Node, Speech, "shim/b", "TestTwo", ""},
		{Node, Speech, "shim/b", "TestThree", ""}, {Node, Speech, "shim/a", "TestGone", ""},
	}, seen)
	if d := cmp.Diff([]Point{{Client, Speech, "shim/a", "TestOne/a path", false}, {Node, Speech, "shim/b", "TestTwo", true}}, points); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"attacks_tried": 2, "attacks_won": 1, "fair_cold_p99_ratio": 1.5}, figures); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if err == nil || err.Error() != "shim/b: TestThree was not run\nshim/a: TestGone was not run" {
		t.Error(err)
	}
}

func TestOnlyTheAttacksAreRun(t *testing.T) {
	args := Args([]Attack{{Client, Speech, "shim/b", "TestTwo/a path (1)", ""}, {Node, Room, "shim/a", "TestOne", ""}, {Client, Room, "shim/a", "TestOne", ""}})
	want := []string{`^TestOne$|^TestTwo$/^a_path_\(1\)$`, "./shim/a", "./shim/b"}
	if got := args[slices.Index(args, "-run")+1:]; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
