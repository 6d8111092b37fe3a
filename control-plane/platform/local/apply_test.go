package local

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// reopen starts from the file without nodes and gateways.
func reopen(t interface{ Fatal(...any) }, file string) *Platform {
	p, err := Open(file, nil, nil, &event.Log{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func named(name string) platform.Function {
	f := fireFunction()
	f.Name, f.Hosts = name, []string{strings.ReplaceAll(name, "/", ".")}
	return f
}

func TestApplyTellsWhatChanged(t *testing.T) {
	p := reopen(t, filepath.Join(t.TempDir(), "functions.json"))
	a, b, c := named("default/a"), named("default/b"), named("default/c")
	steps := []struct {
		apply []platform.Function
		want  []platform.Change
	}{
		{[]platform.Function{b, a}, []platform.Change{platform.Created, platform.Created}},
		{[]platform.Function{a, b, c}, []platform.Change{platform.Unchanged, platform.Unchanged, platform.Created}},
		{[]platform.Function{a, withImage(b), c}, []platform.Change{platform.Unchanged, platform.Configured, platform.Unchanged}},
		{[]platform.Function{withImage(b)}, []platform.Change{platform.Unchanged}},
		{nil, []platform.Change{}},
	}
	for i, s := range steps {
		got, err := p.Apply(s.apply)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s.want, got); d != "" {
			t.Errorf("step %d: %s", i, d)
		}
	}
}

func withImage(f platform.Function) platform.Function {
	f.Image += "-next"
	return f
}

func TestApplyIsAllOrNothing(t *testing.T) {
	many := make([]platform.Function, functionsMost+1)
	for i := range many {
		many[i] = named("many/" + strings.Repeat("x", i/26+1) + string(rune('a'+i%26)))
	}
	large := named("default/large")
	large.Env = map[string]string{"LARGE": strings.Repeat("x", bytesMost)}
	for name, functions := range map[string][]platform.Function{"too many": many, "too large": {named("default/b"), large}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "functions.json")
			p := reopen(t, file)
			if _, err := p.Apply([]platform.Function{named("default/a")}); err != nil {
				t.Fatal(err)
			}
			before := p.State()
			_, err := p.Apply(functions)
			var r *platform.Refusal
			if !errors.As(err, &r) || r.Reason != "PlatformFull" {
				t.Errorf("error is %v", err)
			}
			if d := cmp.Diff(before, p.State()); d != "" {
				t.Errorf("something was deployed: %s", d)
			}
			if d := cmp.Diff(before, reopen(t, file).State()); d != "" {
				t.Errorf("something was written down: %s", d)
			}
		})
	}
}

// What cannot be written down would be gone after a restart, so it is not done at all.
func TestNothingHappensThatCannotBeWrittenDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	p := reopen(t, filepath.Join(dir, "functions.json"))
	if _, err := p.Apply([]platform.Function{named("default/a")}); err != nil {
		t.Fatal(err)
	}
	before := p.State()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no directory any more
		t.Fatal(err)
	}
	if _, err := p.Apply([]platform.Function{withImage(named("default/a")), named("default/b")}); err == nil || !strings.Contains(err.Error(), "writing the deployed functions") {
		t.Errorf("applying: %v", err)
	}
	if err := p.Delete("default/a"); err == nil {
		t.Error("deleted, but a restart brings it back")
	}
	if d := cmp.Diff(before, p.State()); d != "" {
		t.Error(d)
	}
}

func TestAStateFileThatIsDamagedIsNotOverlooked(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "cut off": `{"functions":[{"Na`, "no object": `[]`, "wrong type": `{"functions":[{"Name":7}]}`} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "functions.json")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(file, nil, nil, &event.Log{}, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), "fix "+file+", or remove it and deploy again") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestTheStateFileIsItsOwnersOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "functions.json")
	if _, err := reopen(t, file).Apply([]platform.Function{named("default/a")}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 { // environment variables may be secrets
		t.Errorf("mode is %v", info.Mode())
	}
}

// Whatever was deployed in whatever order: a restart finds it, and deploying it once
// more changes nothing.
func TestWhatIsDeployedSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		file := filepath.Join(dir, rapid.StringMatching(`[a-z]{12}`).Draw(t, "file"))
		defer os.Remove(file)
		p := reopen(t, file)
		functions := rapid.SliceOfNDistinct(rapid.Custom(drawFunction), 1, 5, func(f platform.Function) string { return f.Name }).Draw(t, "functions")
		for _, f := range rapid.Permutation(functions).Draw(t, "order") {
			if _, err := p.Apply([]platform.Function{f}); err != nil {
				t.Fatal(err)
			}
		}
		if gone := rapid.SampledFrom(functions).Draw(t, "deleted").Name; rapid.Bool().Draw(t, "delete") {
			if err := p.Delete(gone); err != nil {
				t.Fatal(err)
			}
			functions = slices.DeleteFunc(functions, func(f platform.Function) bool { return f.Name == gone })
		}
		again := reopen(t, file)
		if d := cmp.Diff(p.State(), again.State()); d != "" {
			t.Fatal(d)
		}
		changes, err := again.Apply(functions)
		if err != nil || slices.ContainsFunc(changes, func(c platform.Change) bool { return c != platform.Unchanged }) {
			t.Fatalf("deploying the same after a restart: %v, %v", changes, err)
		}
	})
}

func drawFunction(t *rapid.T) platform.Function {
	return platform.Function{
		Name:  rapid.StringMatching(`[ab]/[a-f]`).Draw(t, "name"),
		Hosts: rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 0, 2).Draw(t, "hosts"),
		Image: rapid.String().Draw(t, "image"),
		Args:  rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,8}`), 0, 3).Draw(t, "args"),
		Env:   rapid.MapOfN(rapid.StringMatching(`[A-Z]{1,3}`), rapid.StringMatching(`[ -~]{0,8}`), 0, 3).Draw(t, "env"),
		Port:  rapid.Int32().Draw(t, "port"),
		Node:  rapid.SampledFrom([]string{"", "edge"}).Draw(t, "node"),
		Policy: policy.Policy{
			InputLimit:  rapid.Int64().Draw(t, "limit"),
			ScaleToZero: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "idle"),
		},
	}
}
