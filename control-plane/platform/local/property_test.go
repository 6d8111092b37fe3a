package local

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// Whatever happens in whatever order, the state is consistent at each moment; and once
// all is quiet, the nodes run what the state has, and nothing is left over.
func TestAnySequenceOfEventsLeavesAConsistentState(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		file := filepath.Join(dir, "functions.json")
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			rt.Fatal(err)
		}
		// rapid ends a failed attempt by a panic, which has to reach it.
		var failed any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failed = recover() }()
			m := &machine{world: newWorld(t, file), deployed: map[string]int64{}}
			rt.Repeat(map[string]func(*rapid.T){
				"deploy": m.deploy, "delete": m.delete, "activate": m.activateOne, "scale to zero": m.scaleToZero,
				"join": m.join, "leave": m.leave, "restart": func(*rapid.T) { m.restart() },
				"instance": m.instanceChanges, "load": m.load, "wait": m.wait,
				"": m.check,
			})
			m.calm(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

// machine makes things happen to a world.
type machine struct {
	*world
	deployed map[string]int64 // generations
	newest   int64
}

var (
	functionNames = rapid.SampledFrom([]string{"default/a", "default/b", "other/a"})
	nodeNames     = rapid.SampledFrom([]string{"edge", "cloud"})
)

func (m *machine) deploy(t *rapid.T) {
	f := named(functionNames.Draw(t, "function"))
	f.Args = []string{rapid.SampledFrom([]string{"-v", "-q"}).Draw(t, "args")}
	f.Node = rapid.SampledFrom([]string{"", "", "edge"}).Draw(t, "own node")
	changes, err := m.p.Apply([]platform.Function{f})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.p.State().Functions, func(g platform.Function) bool { return g.Name == f.Name })
	generation := m.p.State().Functions[i].Generation
	before, known := m.deployed[f.Name]
	switch {
	case known != (changes[0] != platform.Created):
		t.Fatalf("%s was %s; deployed before: %v", f.Name, changes[0], known)
	case changes[0] == platform.Unchanged && generation != before:
		t.Fatalf("%s is unchanged, but its generation went from %d to %d", f.Name, before, generation)
	case changes[0] != platform.Unchanged && generation <= m.newest:
		t.Fatalf("%s was %s with the old generation %d", f.Name, changes[0], generation)
	}
	m.deployed[f.Name], m.newest = generation, max(m.newest, generation)
}

func (m *machine) delete(t *rapid.T) {
	name := functionNames.Draw(t, "function")
	_, known := m.deployed[name]
	if err := m.p.Delete(name); (err == nil) != known {
		t.Fatalf("deleting %s: %v; deployed before: %v", name, err, known)
	}
	delete(m.deployed, name)
}

func (m *machine) activateOne(t *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), recoverTimeout+time.Second)
	defer cancel()
	r := platform.Request{Function: functionNames.Draw(t, "function"), Node: nodeNames.Draw(t, "gateway")}
	in, err := m.p.Activate(ctx, r)
	var refusal *platform.Refusal
	switch _, known := m.deployed[r.Function]; {
	case err != nil && !errors.As(err, &refusal):
		t.Fatal(err)
	case err == nil && (!known || !m.connected[in.Node] || in.Phase == platform.Stopping):
		t.Fatalf("bound to %+v; deployed: %v", in, known)
	case err != nil && known && len(m.connected) == 2:
		t.Fatalf("refused with all nodes there: %v", err)
	}
}

func (m *machine) scaleToZero(t *rapid.T) {
	if err := m.p.ScaleToZero(context.Background(), functionNames.Draw(t, "function")); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) join(t *rapid.T) { m.Join(nodeNames.Draw(t, "node")) }

func (m *machine) leave(t *rapid.T) {
	if n := nodeNames.Draw(t, "node"); m.connected[n] {
		m.Leave(n)
	}
}

func (m *machine) instanceChanges(t *rapid.T) {
	all := m.p.State().Instances
	if len(all) == 0 {
		return
	}
	in := rapid.SampledFrom(all).Draw(t, "instance")
	if m.running[in.Node][in.ID] == nil {
		return // it never came to be
	}
	switch rapid.SampledFrom([]string{"ready", "fails", "exits"}).Draw(t, "event") {
	case "ready":
		m.Ready(in, address)
	case "fails":
		m.Fail(in)
	case "exits":
		m.Exit(in)
	}
}

func (m *machine) load(t *rapid.T) {
	if n := nodeNames.Draw(t, "node"); m.connected[n] {
		m.p.Load(n, map[string]int32{functionNames.Draw(t, "function"): rapid.Int32Range(-1, 2).Draw(t, "requests")})
	}
}

func (m *machine) wait(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "milliseconds")) * time.Millisecond)
}

func (m *machine) check(t *rapid.T) {
	synctest.Wait()
	st := m.p.State()
	usable, listed := map[string]int{}, map[string]platform.Function{}
	for _, f := range st.Functions {
		listed[f.Name] = f
		if _, ok := m.deployed[f.Name]; ok == f.Deleting {
			t.Errorf("%s is listed as deleting: %v; deployed: %v", f.Name, f.Deleting, ok)
		}
	}
	runs := map[string]bool{}
	for _, in := range st.Instances {
		f, ok := listed[in.Function]
		if !ok {
			t.Errorf("%+v has no function", in)
		}
		runs[in.Function] = true
		if in.Phase != platform.Stopping {
			if usable[in.Function]++; usable[in.Function] > 1 || f.Deleting {
				t.Errorf("%+v is to take requests, as one of %d; deleting: %v", in, usable[in.Function], f.Deleting)
			}
		}
		if in.Phase == platform.Ready && !in.Address.IsValid() {
			t.Errorf("%+v has no address", in)
		}
	}
	for _, f := range st.Functions {
		if f.Deleting && !runs[f.Name] {
			t.Errorf("%s is still listed, without an instance", f.Name)
		}
	}
	for name := range m.deployed {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s is not listed", name)
		}
	}
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	for name := range m.p.activity.Last {
		if _, ok := listed[name]; !ok {
			t.Errorf("activity of %s is kept", name)
		}
	}
}

// calm lets everything come to its end.
func (m *machine) calm(t *rapid.T) {
	for _, n := range []string{"edge", "cloud"} {
		if !m.connected[n] {
			m.Join(n)
		}
		m.p.Load(n, nil)
	}
	f := fireFunction()
	time.Sleep(f.Policy.ScaleToZero + f.Policy.ReadyTimeout + f.RequestTimeout + settleTimeout + drainQuiet)
	m.check(t)
	var want, got []string
	for _, in := range m.p.State().Instances {
		if in.Phase != platform.Starting { // nobody has ended the start
			t.Errorf("%+v is left", in)
		}
		want = append(want, in.ID)
	}
	for _, running := range m.running {
		got = slices.AppendSeq(got, maps.Keys(running))
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the state has other instances than the nodes: %s", d)
	}
}
