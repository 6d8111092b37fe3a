package tree

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

var llama = Prefix{Namespace: "media", Store: "default", Prefix: reference.Reference{Scheme: "s3", Bucket: "models", Key: "llama/"}}

// listed are objects of one byte, and markers of none.
func listed(names ...string) (all []Object) {
	for _, name := range names {
		o := Object{Name: name, Size: 1, Version: `"v"`}
		if name == "" || strings.HasSuffix(name, "/") {
			o.Size = 0
		}
		all = append(all, o)
	}
	return all
}

func TestAPlanHasAllObjects(t *testing.T) {
	p, err := planOf(llama, listed("", "b/c/d", "a", "empty/", "b/x", "ünï/код", "b/c/", "x y", "...", "-", "a\nb"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, o := range p.files {
		files = append(files, o.Name)
	}
	want := []string{"-", "...", "a", "a\nb", "b/c/d", "b/x", "x y", "ünï/код"}
	if d := cmp.Diff(want, files); d != "" {
		t.Errorf("files: %s", d)
	}
	if d := cmp.Diff([]string{"b", "b/c", "empty", "ünï"}, p.directories); d != "" {
		t.Errorf("directories: %s", d)
	}
}

// A store may have keys that no file can have: the volume is refused, since half of it would be worse than none.
func TestAttackOfTheStoreByKeys(t *testing.T) {
	for name, names := range map[string][]string{
		`has the segment ".."`:                 {"a/../../../etc/passwd"},
		`has the segment "."`:                  {"./a"},
		"has an empty segment":                 {"/etc/passwd"},
		"has an empty segment ":                {"a//b"},
		"has an empty segment  ":               {"/"},
		"has a NUL":                            {"a\x00b"},
		"has a segment of more than 255 bytes": {strings.Repeat("a", 256)},
		"is longer than 1024 bytes":            {strings.Repeat("a/", 512) + "b"},
		"is also a prefix of other keys":       {"a", "a/b"},
		"is also a prefix of other keys ":      {"a/b/c/d", "a/b"},
		"is also a prefix of other keys  ":     {"a", "a/"},
		"is listed twice":                      {"a", "b", "a"},
	} {
		_, err := planOf(llama, listed(names...))
		if problem.ReasonOf(err) != "VolumeKeyUnusable" || !strings.Contains(err.Error(), strings.TrimSpace(name)) || len(err.Error()) > 600 {
			t.Errorf("%.50q: %v", names, err)
		}
	}
	for _, name := range []string{"a/", ""} {
		if _, err := planOf(llama, []Object{{Name: name, Size: 1}}); problem.ReasonOf(err) != "VolumeKeyUnusable" {
			t.Errorf("%q with content: %v", name, err)
		}
	}
	if _, err := planOf(llama, listed(strings.Repeat("a", 255), "b/"+strings.Repeat("a/", 510)+"bc")); err != nil {
		t.Errorf("the longest: %v", err)
	}
}

// Keys of many segments make more directories than there are objects.
func TestAttackOfTheStoreByDirectories(t *testing.T) {
	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprint(i)+strings.Repeat("/a", 500))
	}
	if _, err := planOf(llama, listed(names...)); problem.ReasonOf(err) != "VolumeTooLarge" {
		t.Errorf("got %v", err)
	}
}

// A version is named by what it holds, in whatever order that comes.
func TestAnIDIsOfItsContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,2}(/[d-f])?`), 1, 6, rapid.ID[string]).Draw(t, "names")
		p, err := planOf(llama, listed(names...))
		if err != nil {
			return
		}
		same, err := planOf(llama, listed(rapid.Permutation(names).Draw(t, "order")...))
		if err != nil || same.id != p.id {
			t.Fatalf("in another order: %v", err)
		}
		others := map[string]bool{p.id: true}
		add := func(what string, of Prefix, objects []Object) {
			other, err := planOf(of, objects)
			if err != nil || others[other.id] {
				t.Fatalf("%s: %v, or the same id", what, err)
			}
			others[other.id] = true
		}
		changed := listed(names...)
		changed[0].Version = `"w"`
		add("another version", llama, changed)
		changed = listed(names...)
		changed[0].Size++
		add("another size", llama, changed)
		add("one more", llama, listed(append(slices.Clone(names), "x")...))
		add("one more directory", llama, listed(append(slices.Clone(names), "x/")...))
		of := llama
		of.Store = "archive"
		add("another store", of, listed(names...))
		of.Store, of.Prefix.Key = "default", "llama2/"
		add("another prefix", of, listed(names...))
	})
}

func FuzzPlan(f *testing.F) {
	f.Add("a", "b/c", "b/")
	f.Add("a/..", "", "//")
	f.Add("a", "a/b", "\x00")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		p, err := planOf(llama, listed(a, b, c))
		if err != nil {
			return
		}
		made := map[string]bool{".": true}
		for _, d := range p.directories {
			if !made[path.Dir(d)] || made[d] {
				t.Errorf("%q: directory %q cannot be made", []string{a, b, c}, d)
			}
			made[d] = true
		}
		for _, o := range p.files {
			if !made[path.Dir(o.Name)] || made[o.Name] || path.Clean("/"+o.Name) != "/"+o.Name || strings.ContainsRune(o.Name, 0) {
				t.Errorf("%q: file %q (UTF-8: %t) cannot be made", []string{a, b, c}, o.Name, utf8.ValidString(o.Name))
			}
			made[o.Name] = true
		}
	})
}
