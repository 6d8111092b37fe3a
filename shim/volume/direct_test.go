package volume_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/volume"
)

// node is a node's volumes with a store behind.
func node(t *testing.T, from source.Source) (*volume.Set, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volumes")
	placed := &volume.Direct{Path: filepath.Dir(dir), Source: func(function, store string) (source.Source, error) {
		if function != "media/(volumes)" || store != "default" {
			t.Errorf("%s reads from store %s", function, store)
		}
		return from, nil
	}}
	versions, err := tree.Open(dir, placed, false)
	if err != nil {
		t.Fatal(err)
	}
	placed.Drop = versions.Drop
	s := volume.New(versions, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { s.Close(); versions.Close() })
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

// What a volume would take of the spared part of the disk goes to nobody.
func TestADiskStaysPartlyFree(t *testing.T) {
	m := &sourcetest.Memory{}
	m.Put(ref("a"), "", []byte("content"))
	dropped := 0
	placed := &volume.Direct{Path: t.TempDir(), Spared: 1, Source: func(string, string) (source.Source, error) { return m, nil },
		Drop: func() (bool, error) { dropped++; return dropped < 3, nil }}
	root, err := os.OpenRoot(placed.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	of := tree.Prefix{Namespace: "media", Store: "default", Prefix: ref("")}
	err = placed.Place(t.Context(), of, tree.Object{Name: "a", Size: 7, Version: "1"}, root, "a")
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
