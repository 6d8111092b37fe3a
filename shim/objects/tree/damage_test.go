package tree_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// A version with a damaged file stays with its pods, and others get another version, whose own file may be damaged later.
// Daemons that come agree. A version goes at once if no pod has it.
func TestADamagedVersion(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set := open(t, dir, s)
	version := func(pod string) string {
		t.Helper()
		path, _, err := set.Version(t.Context(), llama, pod, "models")
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	seen := map[string]bool{}
	for _, pod := range []string{"one", "two", "three"} {
		path := version(pod)
		if seen[path] || version(pod+"-too") != path {
			t.Errorf("%s has %s", pod, path)
		}
		seen[path] = true
		file := stat(t, path+"/config.json")
		if all, err := set.Damaged(file); err != nil || len(all) != 1 || all[0].Pods != 2 || all[0].Prefix != llama.Prefix.String() {
			t.Errorf("damaged: %+v, %v", all, err)
		}
		if all, err := set.Damaged(stat(t, path+"/7b/a")); err != nil || len(all) != 0 {
			t.Errorf("once more: %+v, %v", all, err)
		}
		if held, err := set.Held(pod); err != nil || held["models"] != path || !os.SameFile(stat(t, path+"/config.json"), file) {
			t.Errorf("%s has %v, %v", pod, held, err)
		}
	}
	set.Close()
	set = open(t, dir, s)
	last := version("")
	if seen[last] {
		t.Errorf("the next daemon gives %s", last)
	}
	all, err := set.List()
	damaged := 0
	for _, h := range all {
		if h.Damaged {
			damaged++
		}
	}
	if err != nil || len(all) != 4 || damaged != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := set.Damaged(stat(t, last+"/7b/b")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(last); !os.IsNotExist(err) {
		t.Errorf("a damaged version that no pod has: %v", err)
	}
}

// A file may be damaged before its version is whole.
func TestAVersionThatIsDamagedWhileItIsMade(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set := open(t, dir, s)
	var once sync.Once
	var file os.FileInfo
	s.before = func(ctx context.Context, name string) error {
		if name == "7b/a" {
			once.Do(func() {
				for file == nil && ctx.Err() == nil { // polls
					if found, _ := filepath.Glob(dir + "/volumes/media/.*/files/config.json"); len(found) == 1 {
						file = stat(t, found[0])
						if err := os.Link(found[0], dir+"/damaged"); err != nil { // its inode stays its own
							t.Error(err)
						}
					}
				}
				if all, err := set.Damaged(file); err != nil || len(all) != 1 {
					t.Errorf("damaged: %+v, %v", all, err)
				}
			})
		}
		return nil
	}
	path, made, err := set.Version(t.Context(), llama, "one", "models")
	if err != nil || !made || os.SameFile(file, stat(t, path+"/config.json")) {
		t.Errorf("made %t, %v", made, err)
	}
	if left, _ := filepath.Glob(dir + "/volumes/media/*"); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

// A version that cannot be marked keeps no other one from being.
func TestAVersionThatCannotBeMarked(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set := open(t, dir, s)
	var paths []string
	for _, pod := range []string{"one", "two", "three"} {
		path, _, err := set.Version(t.Context(), llama, pod, "models")
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		s.put("config.json", pod)
	}
	for _, path := range paths[1:] {
		if err := os.Link(paths[0]+"/7b/a", path+"/shared"); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range paths[:2] {
		if err := os.Symlink("/outside", filepath.Join(filepath.Dir(path), "damaged")); err != nil {
			t.Fatal(err)
		}
	}
	all, err := set.Damaged(stat(t, paths[0]+"/7b/a"))
	if err == nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
