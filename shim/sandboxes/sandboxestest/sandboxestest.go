package sandboxestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// patience is how long real parts may take for what takes them milliseconds.
const patience = 30 * time.Second

// Node is what the suite needs of a node.
type Node struct {
	// Open returns a runtime on the node, as a daemon's start does, and what ends it.
	Open func(t *testing.T) (r sandboxes.Containers, end func())
	// Image holds a program that acts on its arguments as a Memory's do.
	Image string
	// Left names what there is of a sandbox on the node: processes, mounts, addresses.
	Left func(t *testing.T, id string) []string
}

// Run runs the suite; open is called once per test.
func Run(t *testing.T, open func(t *testing.T) Node) {
	for name, test := range map[string]func(*testing.T, *bench){
		"a program is reached":        reached,
		"exit code":                   exitCode,
		"out of memory":               outOfMemory,
		"remove, never started":       removeCreated,
		"remove, running":             removeRunning,
		"remove, exited":              removeExited,
		"remove, stubborn":            removeStubborn,
		"remove, cut short":           removeCutShort,
		"no such image":               noImage,
		"create, cancelled at once":   cancelledAtOnce,
		"create, cancelled later":     cancelledLater,
		"create, twice":               twice,
		"create, many at a time":      many,
		"list, what runs":             listRunning,
		"list, what is half-made":     listHalfMade,
		"list, ended without a watch": listExited,
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			b := &bench{Node: open(t), t: t, port: porttest.Free(t)}
			b.open()
			test(t, b)
			b.end()
			goleak.VerifyNone(t, before)
		})
	}
}

type bench struct {
	Node
	t       *testing.T
	port    uint16
	runtime sandboxes.Containers
	end     func()
}

func (b *bench) open() { b.runtime, b.end = b.Open(b.t) }

// restart is the daemon's.
func (b *bench) restart() {
	b.end()
	b.open()
}

var ids atomic.Int64

func (b *bench) spec(args ...string) sandboxes.Spec {
	// Unique, for what is left of one shows up in tests that follow.
	id := fmt.Sprintf("suite-%d-%d", time.Now().UnixMilli(), ids.Add(1))
	return sandboxes.Spec{ID: id, Function: "default/suite", Image: b.Image, Args: args}
}

func (b *bench) serve() sandboxes.Spec { return b.spec("serve", strconv.Itoa(int(b.port))) }

func (b *bench) create(s sandboxes.Spec) sandboxes.Container {
	b.t.Helper()
	sb, err := b.runtime.Create(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	if sb.ID() != s.ID || sb.Function() != s.Function || !sb.Address().Is4() {
		b.t.Errorf("sandbox %s of %s at %s, want %s of %s", sb.ID(), sb.Function(), sb.Address(), s.ID, s.Function)
	}
	return sb
}

func (b *bench) start(s sandboxes.Spec) sandboxes.Container {
	b.t.Helper()
	sb := b.create(s)
	if err := sb.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return sb
}

// reach returns once the sandbox's program listens.
func (b *bench) reach(sb sandboxes.Container) {
	b.t.Helper()
	to := netip.AddrPortFrom(sb.Address(), b.port).String()
	deadline := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := net.DialTimeout("tcp", to, patience)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			b.t.Fatalf("nothing listens: %v", err)
		}
	}
}

// remove removes the sandbox and sees that nothing is left of it.
func (b *bench) remove(sb sandboxes.Container, grace time.Duration) {
	b.t.Helper()
	if err := sb.Remove(b.t.Context(), grace); err != nil {
		b.t.Error(err)
	}
	b.ended(sb)
	b.nothing(sb.ID())
}

func (b *bench) ended(sb sandboxes.Container) {
	b.t.Helper()
	select {
	case <-sb.Exited():
	case <-time.After(patience):
		b.t.Fatal("the end of the program was not told")
	}
}

func (b *bench) nothing(ids ...string) {
	b.t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, id := range ids {
		for left := b.Left(b.t, id); len(left) > 0; left = b.Left(b.t, id) {
			select {
			case <-again.C: // a process takes a moment to end
			case <-deadline:
				b.t.Fatalf("%s has left %v", id, left)
			}
		}
	}
}

func reached(_ *testing.T, b *bench) {
	sb := b.start(b.serve())
	b.reach(sb)
	b.remove(sb, 0)
}

func exitCode(t *testing.T, b *bench) {
	sb := b.start(b.spec("exit", "3"))
	b.ended(sb)
	if sb.Exit().Code != 3 {
		t.Errorf("exit code %d, want 3", sb.Exit().Code)
	}
	b.remove(sb, 0)
}

// outOfMemory: a program that is killed for its limit is told apart from one that is killed.
func outOfMemory(t *testing.T, b *bench) {
	s := b.spec("fill", "0")
	s.MemoryLimit = 32 << 20
	sb := b.start(s)
	b.ended(sb)
	if e := sb.Exit(); e.Code != killed || !e.OutOfMemory {
		t.Errorf("exit: %+v", e)
	}
	b.remove(sb, 0)
	stubborn := b.start(b.spec("stubborn", strconv.Itoa(int(b.port))))
	b.remove(stubborn, 0)
	if e := stubborn.Exit(); e.OutOfMemory {
		t.Errorf("exit of a program that was killed: %+v", e)
	}
}

// removeCreated: there is no program to wait for.
func removeCreated(_ *testing.T, b *bench) {
	b.remove(b.create(b.serve()), 10*patience)
}

// removeRunning: a program that heeds the signal does not use up its grace.
func removeRunning(t *testing.T, b *bench) {
	sb := b.start(b.serve())
	b.reach(sb)
	b.remove(sb, 10*patience)
	if sb.Exit().Code != 0 {
		t.Errorf("exit code %d, want the program's own 0", sb.Exit().Code)
	}
	if err := sb.Remove(t.Context(), 0); err != nil {
		t.Errorf("removed again: %v", err)
	}
}

func removeExited(_ *testing.T, b *bench) {
	sb := b.start(b.spec("exit", "0"))
	b.ended(sb)
	b.remove(sb, 10*patience)
}

// removeStubborn: a program that ignores the signal is killed.
func removeStubborn(_ *testing.T, b *bench) {
	sb := b.start(b.spec("stubborn", strconv.Itoa(int(b.port))))
	b.reach(sb)
	b.remove(sb, 50*time.Millisecond)
}

// removeCutShort: who has no time for the grace can kill instead.
func removeCutShort(t *testing.T, b *bench) {
	sb := b.start(b.spec("stubborn", strconv.Itoa(int(b.port))))
	b.reach(sb)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := sb.Remove(ctx, 10*patience); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of its time", err)
	}
	b.remove(sb, 0)
}

func noImage(t *testing.T, b *bench) {
	s := b.serve()
	s.Image = "absent.invalid/none:1"
	_, err := b.runtime.Create(t.Context(), s)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "ImageUnavailable" || p.Field != "spec.template.spec.containers[0].image" {
		t.Errorf("%v, want ImageUnavailable with its field", err)
	}
	b.nothing(s.ID)
}

func cancelledAtOnce(t *testing.T, b *bench) {
	s := b.serve()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.runtime.Create(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the cancellation", err)
	}
	b.nothing(s.ID)
}

// cancelledLater: whenever it strikes, nothing is left; what came too late is there.
func cancelledLater(t *testing.T, b *bench) {
	for after := time.Millisecond; after < 300*time.Millisecond; after *= 2 {
		s := b.serve()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		sb, err := b.runtime.Create(ctx, s)
		cancel()
		switch {
		case err == nil:
			b.remove(sb, 0)
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("after %s: %v", after, err)
		}
		b.nothing(s.ID)
	}
}

// twice: who asks for what there is does no harm to it.
func twice(t *testing.T, b *bench) {
	s := b.serve()
	sb := b.start(s)
	if _, err := b.runtime.Create(t.Context(), s); err == nil {
		t.Error("a second sandbox of one id")
	}
	b.reach(sb)
	b.remove(sb, 0)
}

func many(t *testing.T, b *bench) {
	const count = 4
	made := make(chan sandboxes.Container, count)
	for range count {
		s := b.serve()
		go func() {
			sb, err := b.runtime.Create(t.Context(), s)
			if err == nil {
				err = sb.Start(t.Context())
			}
			if err != nil {
				t.Error(err)
				sb = nil
			}
			made <- sb
		}()
	}
	at := map[netip.Addr]bool{}
	var all []sandboxes.Container
	for range count {
		sb := <-made
		if sb == nil {
			continue
		}
		b.reach(sb)
		at[sb.Address()] = true
		all = append(all, sb)
	}
	if len(at) != count {
		t.Errorf("%d addresses for %d sandboxes", len(at), count)
	}
	removed := make(chan error, count)
	for _, sb := range all {
		go func() { removed <- sb.Remove(t.Context(), patience) }()
	}
	for _, sb := range all {
		if err := <-removed; err != nil {
			t.Errorf("removing %s: %v", sb.ID(), err)
		}
	}
	for _, sb := range all {
		b.nothing(sb.ID())
	}
}

// list returns what a runtime tells of its sandboxes, by id.
func (b *bench) list() (told map[string]string, sandboxes []sandboxes.Container) {
	b.t.Helper()
	sandboxes, err := b.runtime.List(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return tell(sandboxes...), sandboxes
}

func tell(sandboxes ...sandboxes.Container) map[string]string {
	told := map[string]string{}
	for _, sb := range sandboxes {
		told[sb.ID()] = sb.Function() + " at " + sb.Address().String()
	}
	return told
}

// listRunning: what runs goes on through a daemon's restart, and can be watched and
// removed afterwards.
func listRunning(t *testing.T, b *bench) {
	one, other := b.start(b.serve()), b.start(b.serve())
	b.reach(one)
	b.reach(other)
	want := tell(one, other)
	b.restart()
	got, sandboxes := b.list()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("sandboxes after a restart (-want +got):\n%s", diff)
	}
	for _, sb := range sandboxes {
		b.reach(sb)
		select {
		case <-sb.Exited():
			t.Error("told to have ended")
		default:
		}
	}
	for _, sb := range sandboxes {
		b.remove(sb, patience)
		if sb.Exit().Code != 0 {
			t.Errorf("exit code %d, want the program's own 0", sb.Exit().Code)
		}
	}
}

func listHalfMade(t *testing.T, b *bench) {
	created, running := b.create(b.serve()), b.start(b.serve())
	b.restart()
	got, sandboxes := b.list()
	if diff := cmp.Diff(tell(running), got); diff != "" {
		t.Fatalf("sandboxes after a restart (-want +got):\n%s", diff)
	}
	b.nothing(created.ID())
	b.remove(sandboxes[0], 0)
}

// listExited: a program that ended while no daemon was there is heard of.
func listExited(t *testing.T, b *bench) {
	sb := b.start(b.spec("exit", "3"))
	b.ended(sb)
	b.restart()
	got, sandboxes := b.list()
	if diff := cmp.Diff(tell(sb), got); diff != "" {
		t.Fatalf("sandboxes after a restart (-want +got):\n%s", diff)
	}
	b.ended(sandboxes[0])
	if code := sandboxes[0].Exit().Code; code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	b.remove(sandboxes[0], 0)
}
