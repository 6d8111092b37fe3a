package tree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var llama = tree.Prefix{Namespace: "media", Store: "default", Prefix: reference.Reference{Scheme: "s3", Bucket: "models", Key: "llama/"}}

// store has objects in memory.
type store struct {
	mu      sync.Mutex
	content map[string]string
	placed  atomic.Int32
	// before is called before an object is placed; nil: nothing is.
	before func(ctx context.Context, name string) error
}

func (s *store) put(name, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content[name] = content
}

func (s *store) List(_ context.Context, _ tree.Prefix, each func(tree.Object) error) error {
	s.mu.Lock()
	content := maps.Clone(s.content)
	s.mu.Unlock()
	for name, c := range content {
		if err := each(tree.Object{Name: name, Size: int64(len(c)), Version: c}); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) Place(ctx context.Context, _ tree.Prefix, o tree.Object, root *os.Root, name string) error {
	if s.before != nil {
		if err := s.before(ctx, name); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placed.Add(1)
	if s.content[o.Name] != o.Version {
		return fmt.Errorf("%w: %s", tree.ErrChanged, o.Name)
	}
	return root.WriteFile(name, []byte(s.content[o.Name]), 0o444)
}

func newStore() *store {
	return &store{content: map[string]string{"config.json": "{}", "7b/a": "weights", "7b/b": "more", "7b/empty": "", "logs/": ""}}
}

func open(t *testing.T, dir string, s *store) *tree.Set {
	t.Helper()
	set, err := tree.Open(filepath.Join(dir, "volumes"), s, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return set
}

// content is what is below a directory; directories have none.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if found[path] = "/"; !d.IsDir() {
			b, err := os.ReadFile(filepath.Join(dir, path))
			found[path] = string(b)
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAVersionHasAllObjectsAndIsShared(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set := open(t, dir, s)
	path, _, err := set.Version(t.Context(), llama, "media_chat_u1", "models")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"config.json": "{}", "7b": "/", "7b/a": "weights", "7b/b": "more", "7b/empty": "", "logs": "/"}
	if d := cmp.Diff(want, content(t, path)); d != "" {
		t.Error(d)
	}
	second, _, err := set.Version(t.Context(), llama, "media_chat_u2", "words")
	if err != nil || second != path || s.placed.Load() != 3 {
		t.Errorf("the second pod has %s, %v, after %d objects", second, err, s.placed.Load())
	}
	bank := llama
	bank.Namespace = "bank"
	if other, _, err := set.Version(t.Context(), bank, "bank_chat_u3", "models"); err != nil || other == path {
		t.Errorf("another namespace has %s, %v", other, err)
	}
	// A changed object makes another version, and the first stays as it is.
	s.put("config.json", "{1}")
	third, _, err := set.Version(t.Context(), llama, "media_chat_u4", "models")
	if err != nil || third == path || content(t, third)["config.json"] != "{1}" || content(t, path)["config.json"] != "{}" {
		t.Errorf("after a change: %s, %v", third, err)
	}
}

// Which pod has which version is known after a restart; the least recently used one goes first, and none that a pod has.
func TestVersionsStayAsLongAsAPodHasThem(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set, err := tree.Open(filepath.Join(dir, "volumes"), s, false)
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := set.Version(t.Context(), llama, "u1", "models")
	s.put("config.json", "{1}")
	now, _, err2 := set.Version(t.Context(), llama, "u2", "models")
	warm := tree.Prefix{Namespace: "media", Store: "default", Prefix: reference.Reference{Scheme: "s3", Bucket: "models"}}
	staged, _, err3 := set.Version(t.Context(), warm, "", "")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	set.Close()
	set = open(t, dir, s)
	held, err := set.Held("u1")
	if d := cmp.Diff(map[string]string{"models": old}, held); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	gone := func(path string) bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) }
	if dropped, err := set.Drop(); !dropped || err != nil || !gone(staged) || gone(old) || gone(now) {
		t.Errorf("the staged one: %t, %v", dropped, err)
	}
	if dropped, err := set.Drop(); dropped || err != nil {
		t.Errorf("with pods: %t, %v", dropped, err)
	}
	if err := set.Release("u1"); err != nil {
		t.Fatal(err)
	}
	if again, _, err := set.Version(t.Context(), llama, "u1", "models"); err != nil || again != now {
		t.Errorf("a pod that comes after the change has %s, %v", again, err)
	}
	if dropped, err := set.Drop(); !dropped || err != nil || !gone(old) || gone(now) {
		t.Errorf("after its pod: %t, %v", dropped, err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(now))); err != nil {
		t.Error(err)
	}
}

// Nothing is seen before it is whole, and nothing is left of what is given up or fails.
func TestNothingIsLeftOfAVersionThatIsNotWhole(t *testing.T) {
	for name, failure := range map[string]error{"given up": nil, "fails": errors.New("no room")} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(), t.TempDir()
			set := open(t, dir, s)
			begun := make(chan struct{}, 8)
			s.before = func(ctx context.Context, file string) error {
				begun <- struct{}{}
				if failure == nil {
					<-ctx.Done()
					return ctx.Err()
				}
				return failure
			}
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					if _, _, err := set.Version(ctx, llama, "u1", "models"); err == nil || failure != nil && !errors.Is(err, failure) {
						t.Errorf("got %v", err)
					}
				})
			}
			<-begun
			if failure == nil {
				cancel()
			}
			all.Wait()
			cancel()
			set.Close()
			if left, err := filepath.Glob(filepath.Join(dir, "volumes/media/*")); len(left) != 0 || err != nil {
				t.Errorf("left: %q, %v", left, err)
			}
			if hidden, _ := filepath.Glob(filepath.Join(dir, "volumes/media/.*")); len(hidden) != 0 {
				t.Errorf("left: %q", hidden)
			}
		})
	}
}

// All who wait for a version get the one that is made, and none of them ends it for the others.
func TestAVersionIsMadeOnceForAllWhoWait(t *testing.T) {
	s := newStore()
	set := open(t, t.TempDir(), s)
	wait, begun := make(chan struct{}), make(chan struct{}, 8)
	s.before = func(context.Context, string) error { begun <- struct{}{}; <-wait; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	first := make(chan error)
	go func() { _, _, err := set.Version(ctx, llama, "u0", "models"); first <- err }()
	<-begun
	for i := range 10 {
		all.Go(func() {
			if _, _, err := set.Version(t.Context(), llama, fmt.Sprint("u", i+1), "models"); err != nil {
				t.Error(err)
			}
		})
	}
	close(wait)
	all.Wait()
	cancel()
	<-first
	if n := s.placed.Load(); n != 3 {
		t.Errorf("%d objects were placed", n)
	}
}

// Two daemons of a node make, drop and let go of versions at once: what a pod has is whole for as long as it has it.
func TestTwoDaemonsAgree(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	first := open(t, dir, s)
	second, err := tree.Open(filepath.Join(dir, "volumes"), s, true)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	want := map[string]string{"config.json": "{}", "7b": "/", "7b/a": "weights", "7b/b": "more", "7b/empty": "", "logs": "/"}
	var pods, drops sync.WaitGroup
	over := make(chan struct{})
	for i, set := range []*tree.Set{first, second, first, second} {
		pods.Go(func() {
			for n := range 50 {
				pod := fmt.Sprint("u", i, "-", n)
				path, _, err := set.Version(t.Context(), llama, pod, "models")
				if errors.Is(err, fs.ErrNotExist) {
					continue // dropped three times between making and taking it
				}
				if err != nil {
					t.Errorf("pod %s: %v", pod, err)
					return
				}
				if d := cmp.Diff(want, content(t, path)); d != "" {
					t.Errorf("pod %s has another volume: %s", pod, d)
				}
				if err := set.Release(pod); err != nil {
					t.Error(err)
				}
			}
		})
		drops.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, err := set.Drop(); err != nil {
					t.Errorf("drop: %v", err)
				}
			}
		})
	}
	pods.Wait()
	close(over)
	drops.Wait()
}

// What changes while it is read is listed again; what never stands still fails.
func TestAPrefixThatChanges(t *testing.T) {
	s := newStore()
	set := open(t, t.TempDir(), s)
	var once sync.Once
	s.before = func(context.Context, string) error { once.Do(func() { s.put("7b/a", "other") }); return nil }
	path, _, err := set.Version(t.Context(), llama, "u1", "models")
	if err != nil || content(t, path)["7b/a"] != "other" {
		t.Errorf("got %v", err)
	}
	var changes atomic.Int32
	s.before = func(_ context.Context, name string) error { s.put(name, fmt.Sprint(changes.Add(1))); return nil }
	s.put("7b/a", "again")
	if _, _, err := set.Version(t.Context(), llama, "u2", "models"); !errors.Is(err, tree.ErrChanged) {
		t.Errorf("got %v", err)
	}
}

// What a killed process left is removed, and so are all versions after the machine has been started again.
func TestAStartRemovesWhatCannotBeTrusted(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	volumes := filepath.Join(dir, "volumes")
	path, _, err := open(t, dir, s).Version(t.Context(), llama, "u1", "models")
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(volumes, "media", ".half", "files")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := tree.Open(volumes, s, true)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if _, err := os.Stat(half); err != nil {
		t.Errorf("what the other daemon makes: %v", err)
	}
	open(t, dir, s)
	if _, err := os.Stat(half); err == nil {
		t.Error("what a killed one made is there")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(volumes, ".boot"), []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, s)
	if _, err := os.Stat(path); err == nil {
		t.Error("a version of an earlier boot is there")
	}
}

// An inode has 65,000 links at most.
func TestAHundredThousandEmptyFiles(t *testing.T) {
	const most = 100_000
	s := &store{content: map[string]string{}}
	for i := range most {
		s.content[fmt.Sprintf("%02x/%d", i%256, i)] = ""
	}
	path, _, err := open(t, t.TempDir(), s).Version(t.Context(), llama, "u1", "models")
	if err != nil {
		t.Fatal(err)
	}
	if files := len(content(t, path)) - 256; files != most || s.placed.Load() != 0 {
		t.Errorf("%d files, and %d objects were fetched", files, s.placed.Load())
	}
}

// A prefix may have more than a node takes.
func TestAttackOfTheStoreByManyObjects(t *testing.T) {
	listed := 0
	set, err := tree.Open(filepath.Join(t.TempDir(), "volumes"), endless{&listed}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	_, _, err = set.Version(t.Context(), llama, "u1", "models")
	if problem.ReasonOf(err) != "VolumeTooLarge" || listed > 1<<17+1 {
		t.Errorf("after %d objects: %v", listed, err)
	}
}

// endless lists objects for as long as somebody listens.
type endless struct{ n *int }

func (e endless) List(_ context.Context, _ tree.Prefix, each func(tree.Object) error) error {
	for {
		*e.n++
		if err := each(tree.Object{Name: fmt.Sprint(*e.n), Size: 1}); err != nil {
			return err
		}
	}
}

func (endless) Place(context.Context, tree.Prefix, tree.Object, *os.Root, string) error { return nil }
