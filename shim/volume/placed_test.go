package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/volume"
)

// placed is a node's objects with a store behind, for volumes below dir.
func placed(t *testing.T, dir string, from source.Source, c objects.Config) (*volume.Placed, *tree.Set) {
	t.Helper()
	files, err := buffer.OpenFiles(filepath.Join(filepath.Dir(dir), "buffer"))
	if err != nil {
		t.Fatal(err)
	}
	spare := int64(0)
	if c.Spared {
		spare = 100
	}
	// The buffer's limit is less than a volume has.
	room := buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: 1 << 10, Spare: spare, Medium: files})
	p := &volume.Placed{}
	versions, err := tree.Open(dir, p, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.Drop == nil {
		c.Drop = versions.Drop
	}
	c.Buffer, c.Age = room, time.Hour
	c.Sources = func(function, store string) (source.Source, error) {
		if function != "media/(volumes)" || store != "default" {
			t.Errorf("%s reads from store %s", function, store)
		}
		return from, nil
	}
	p.Cache = objects.New(c)
	t.Cleanup(func() {
		versions.Close()
		if err := errors.Join(p.Cache.Close(context.Background()), room.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, versions
}

// node is a node's volumes with a store behind.
func node(t *testing.T, from source.Source) (*volume.Set, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volumes")
	_, versions := placed(t, dir, from, objects.Config{})
	s := volume.New(versions, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return s, dir
}

func ref(key string) source.Reference {
	return source.Reference{Scheme: "s3", Bucket: "models", Key: "llama/" + key}
}

// From the control plane's word to the files that a container sees.
func TestAVolumeIsAsInItsStore(t *testing.T) {
	m := &sourcetest.Memory{}
	for i := range 300 {
		m.Put(ref(fmt.Sprintf("%d/%d", i%7, i)), "", bytes.Repeat([]byte{byte(i)}, i*17))
	}
	s, dir := node(t, m)
	about := message(0)
	about.Volumes = about.GetVolumes()[:1]
	about.Wait.Seconds = 60
	s.Begin(about)
	need, err := s.Bring(sandboxes.Sandbox{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := need.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := got[0].GetSource()
	if rest := strings.TrimPrefix(path, dir+"/media/"); len(rest) != len("/files")+64 || !strings.HasSuffix(rest, "/files") {
		t.Errorf("it is at %s, where no shim looks for it", path)
	}
	for i := range 300 {
		content, err := os.ReadFile(filepath.Join(path, fmt.Sprintf("%d/%d", i%7, i)))
		if err != nil || !bytes.Equal(content, bytes.Repeat([]byte{byte(i)}, i*17)) {
			t.Fatalf("object %d: %v, %d bytes", i, err, len(content))
		}
	}
}

// Versions of a volume share the files of objects that have not changed, which are fetched once. A version that no pod
// has is removed when there is no room, and then what the node has kept of its objects.
func TestVersionsShareTheirObjects(t *testing.T) {
	m := &sourcetest.Memory{}
	fetched := map[string]int{}
	var mu sync.Mutex
	m.Before = func(_ context.Context, ref source.Reference, at int64) error {
		mu.Lock()
		defer mu.Unlock()
		if at == 0 {
			fetched[ref.Key]++
		}
		return nil
	}
	m.Put(ref("a"), "", bytes.Repeat([]byte("a"), 5000))
	m.Put(ref("b"), "", []byte("b"))
	p, versions := placed(t, filepath.Join(t.TempDir(), "volumes"), m, objects.Config{})
	of := tree.Prefix{Namespace: "media", Store: "default", Prefix: ref("")}
	file := func(pod string) os.FileInfo {
		t.Helper()
		at, _, err := versions.Version(t.Context(), of, pod, "models")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(at, "a"))
		if err != nil || info.Mode() != 0o444 || info.Size() != 5000 {
			t.Fatalf("got %v, %v", info, err)
		}
		return info
	}
	first := file("one")
	m.Put(ref("b"), "", []byte("c"))
	if second := file("two"); !os.SameFile(first, second) {
		t.Error("an object that has not changed has another file")
	}
	if fetched["llama/a"] != 1 || fetched["llama/b"] != 2 {
		t.Errorf("fetched %v", fetched)
	}
	if used := p.Cache.Buffer.Tiers()[0]; used.Used+used.Kept != 0 {
		t.Errorf("volumes count for inputs: %+v", used)
	}
}

// What was in a volume is kept when that is removed, until its room is needed.
func TestARemovedVolumeIsMadeOfWhatIsKept(t *testing.T) {
	m := &sourcetest.Memory{}
	var fetches atomic.Int32
	m.Before = func(context.Context, source.Reference, int64) error { fetches.Add(1); return nil }
	m.Put(ref("a"), "", []byte("content"))
	_, versions := placed(t, filepath.Join(t.TempDir(), "volumes"), m, objects.Config{})
	of := tree.Prefix{Namespace: "media", Store: "default", Prefix: ref("")}
	for range 2 {
		at, _, err := versions.Version(t.Context(), of, "", "models")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(at, "a")); err != nil || string(got) != "content" {
			t.Errorf("got %q, %v", got, err)
		}
		if dropped, err := versions.Drop(); err != nil || !dropped {
			t.Fatalf("%v, %v", dropped, err)
		}
	}
	if n := fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// known is a store of which digests are computed.
type known struct{ *sourcetest.Memory }

func (known) Identity() string { return "known" }

// A file that is damaged under pods that have it is fetched again for the next pod, and the operator is told once.
func TestADamagedFileOfAVolume(t *testing.T) {
	m := &sourcetest.Memory{}
	m.Put(ref("a"), "", []byte("content"))
	m.Put(ref("b"), "", []byte("other"))
	var versions *tree.Set
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	told := volume.Damaged(func(file os.FileInfo) ([]tree.Held, error) { return versions.Damaged(file) },
		metrics, slog.New(slog.NewTextHandler(&log, nil)))
	dir := filepath.Join(t.TempDir(), "volumes")
	var p *volume.Placed
	p, versions = placed(t, dir, known{m}, objects.Config{Damaged: told})
	of := tree.Prefix{Namespace: "media", Store: "default", Prefix: ref("")}
	reads := func(pod, want string) string {
		t.Helper()
		at, _, err := versions.Version(t.Context(), of, pod, "models")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(at, "a")); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", pod, got, err)
		}
		return at
	}
	old := reads("one", "content")
	notes := func() int {
		all, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "buffer", "*.note"))
		return len(all)
	}
	for notes() < 2 && t.Context().Err() == nil { // until the digests are there
		time.Sleep(time.Millisecond) // polls
	}
	if err := errors.Join(os.Chmod(old+"/a", 0o600), os.WriteFile(old+"/a", []byte("CONTENT"), 0), os.Chmod(old+"/a", 0o444)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.Cache.Verify(t.Context(), func(objects.Key) bool { return true }); err != nil {
			t.Error(err)
		}
	}
	if at := reads("two", "content"); at == old || reads("three", "content") != at {
		t.Error("the next pods have the damaged version")
	}
	if got, err := os.ReadFile(filepath.Join(old, "a")); err != nil || string(got) != "CONTENT" {
		t.Errorf("the first pod reads %q, %v", got, err)
	}
	if n := strings.Count(log.String(), "has a damaged file"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader("# HELP headstart_volumes_damaged_total Versions of volumes "+
		"in which a file was found damaged.\n# TYPE headstart_volumes_damaged_total counter\nheadstart_volumes_damaged_total 1\n")); err != nil {
		t.Error(err)
	}
}

// What a volume would take of the spared part of the disk goes to nobody.
func TestADiskStaysPartlyFree(t *testing.T) {
	m := &sourcetest.Memory{}
	m.Put(ref("a"), "", []byte("content"))
	dropped := 0
	dir := filepath.Join(t.TempDir(), "volumes")
	c := objects.Config{Spared: true, Drop: func() (bool, error) { dropped++; return dropped < 3, nil }}
	_, versions := placed(t, dir, m, c)
	of := tree.Prefix{Namespace: "media", Store: "default", Prefix: ref("")}
	_, _, err := versions.Version(t.Context(), of, "", "models")
	if problem.ReasonOf(err) != "VolumeNoRoom" || dropped != 3 {
		t.Errorf("got %v after %d volumes were removed", err, dropped)
	}
}

// changing has other objects than it lists.
type changing struct{ *sourcetest.Memory }

func (c changing) List(ctx context.Context, prefix source.Reference, each func(string, source.Object) error) error {
	return c.Memory.List(ctx, prefix, func(name string, o source.Object) error {
		o.Version += "x"
		return each(name, o)
	})
}

// huge lists an object that no disk has room for, and nothing else is read of it.
type huge struct{ source.Source }

func (huge) List(_ context.Context, _ source.Reference, each func(string, source.Object) error) error {
	return each("a", source.Object{Size: 1 << 60, Version: "v"})
}

func (huge) Fetch(_ context.Context, _ source.Reference, _ string, begin func(source.Object) (io.WriterAt, error)) error {
	_, err := begin(source.Object{Size: 1 << 60, Version: "v"})
	return err
}

func TestAVolumeThatCannotBeHad(t *testing.T) {
	m := &sourcetest.Memory{}
	m.Put(ref("a"), "", []byte("content"))
	for name, tt := range map[string]struct {
		from   source.Source
		reason problem.Reason
		field  string
	}{
		"changes":      {changing{m}, problem.ReasonInputChanged, "headstart.dev/volumes"},
		"is too large": {huge{m}, "VolumeNoRoom", "headstart.dev/volumes"},
		"has no lists": {struct{ source.Source }{m}, "StoreNotAllowed", "headstart.dev/volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := node(t, tt.from)
			about := message(0)
			about.Volumes = about.GetVolumes()[:1]
			about.Wait.Seconds = 60
			s.Begin(about)
			need, err := s.Bring(sandboxes.Sandbox{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			_, err = need.Volumes(t.Context())
			if p := problem.Of(err); problem.ReasonOf(err) != tt.reason || p.Field != tt.field {
				t.Errorf("got %v", err)
			}
			s.Close()
			if left, _ := filepath.Glob(filepath.Join(dir, "media", "*")); len(left) != 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}
