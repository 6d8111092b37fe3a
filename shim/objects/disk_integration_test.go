//go:build integration

package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/powertest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// disk mounts a small disk of its own.
func disk(t *testing.T) string {
	t.Helper()
	image, at := t.TempDir()+"/image", t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v, which needs root: %v, %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 32<<20)); err != nil {
		t.Fatal(err)
	}
	run("mkfs.ext4", "-q", "-m", "0", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { run("losetup", "--detach", device) })
	run("mount", device, at)
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// daemonOn is a daemon with its buffer on a disk, and then in other directories.
func daemonOn(t *testing.T, dirs ...string) *node {
	t.Helper()
	var tiers []buffer.Tier
	for i, dir := range dirs {
		files, err := buffer.OpenFiles(dir + "/b")
		if err != nil {
			t.Fatal(err)
		}
		tiers = append(tiers, buffer.Tier{Name: fmt.Sprint("disk", i), Limit: 1 << 30, Medium: files})
	}
	buf := buffer.New(buffer.Quota{}, tiers...)
	n := &node{store: &sourcetest.Memory{}, buffer: buf, outcomes: make(chan objects.Outcome, 100), evicted: map[string]int{}, fresh: time.Hour}
	from := &identified{n.store, "here"}
	n.Cache = objects.New(objects.Config{Rule: n.rule, Buffer: buf, Age: age, Metrics: n,
		Sources: func(string, string) (source.Source, error) { return from, nil }})
	t.Cleanup(func() { // a disk that has failed takes no notes
		if err := errors.Join(n.Close(context.Background()), buf.Close()); err != nil {
			t.Log(err)
		}
	})
	return n
}

// larges are objects of 2 MiB.
func (n *node) larges(many int) (refs []source.Reference, content [][]byte) {
	for at := range many {
		refs = append(refs, source.Reference{Scheme: "s3", Bucket: "inputs", Key: fmt.Sprint(at)})
		content = append(content, bytes.Repeat([]byte{byte(at)}, bufferLimit))
		n.store.Put(refs[at], "", content[at])
	}
	return refs, content
}

// On a disk that others fill, what is kept goes for inputs. Beyond that a request hears that the disk is full, until
// there is room again.
func TestAFullDisk(t *testing.T) {
	at := disk(t)
	n := daemonOn(t, at)
	refs, content := n.larges(6)
	for k := range 3 {
		i, err := n.gets(t, refs[k], content[k])
		if err != nil {
			t.Fatal(err)
		}
		i.Release()
	}
	filler, err := os.Create(at + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 4<<10; {
		if _, err = filler.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	full := 0
	for k := 3; k < 6; k++ {
		for _, at := range []int{k, k - 3} {
			i, err := n.gets(t, refs[at], content[at])
			defer i.Release()
			if p := problem.Of(err); err != nil && (p.Title != "BufferFull" || !strings.Contains(p.Detail, "is full") && !strings.Contains(p.Detail, "no room")) {
				t.Errorf("object %d: %v", at, err)
			}
			if err != nil {
				full++
			}
		}
	}
	if full == 0 || full == 6 {
		t.Errorf("%d of 6 requests found the disk full", full)
	}
	if err := os.Remove(at + "/filler"); err != nil {
		t.Fatal(err)
	}
	for k := range refs {
		i, err := n.gets(t, refs[k], content[k])
		if err != nil {
			t.Errorf("object %d, with room again: %v", k, err)
		}
		i.Release()
	}
}

// A disk that fails under the daemon takes nothing more: what is fetched goes where there is another tier, or the
// request hears what is wrong with the disk. What is kept is intact, or fetched again.
func TestADiskThatFails(t *testing.T) {
	for name, in := range map[string]struct {
		fail func(at string) error
	}{
		"is read-only": {func(at string) error { return unix.Mount("", at, "", unix.MS_REMOUNT, "abort") }}, // as after an error
		"is gone":      {powertest.Shut},
	} {
		for second, dirs := range map[string]int{"alone": 0, "and another tier": 1} {
			t.Run(name+" "+second, func(t *testing.T) {
				at := disk(t)
				all := []string{at}
				for range dirs {
					all = append(all, t.TempDir())
				}
				n := daemonOn(t, all...)
				refs, content := n.larges(3)
				for k := range 2 {
					i, err := n.gets(t, refs[k], content[k])
					if err != nil {
						t.Fatal(err)
					}
					i.Release()
				}
				_ = in.fail(at) // which the next line shows
				if err := os.WriteFile(at+"/probe", nil, 0o600); err == nil {
					t.Fatal("the disk does not fail")
				}
				for round := range 2 {
					for k := range refs {
						i, err := n.gets(t, refs[k], content[k])
						t.Logf("object %d: %v", k, err)
						if p := problem.Of(err); k == 2 && dirs == 0 && (p.Title != "BufferUnavailable" || !strings.Contains(p.Detail, "the disk of the node's input buffer fails")) ||
							dirs == 1 && (k == 2 || round == 1) && err != nil {
							t.Errorf("object %d: %v", k, err)
						}
						i.Release()
					}
				}
			})
		}
	}
}
