package reference

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseRoute(t *testing.T) {
	for _, c := range []struct {
		route, path string
		want        map[string]string // nil: the path does not match
	}{
		{"/videos/{camera}/{frame}", "/videos/c1/7", map[string]string{"camera": "c1", "frame": "7"}},
		{"/videos/{+key}", "/videos/c1/7", map[string]string{"key": "c1/7"}},
		{"/{a}/b/{+c}", "/1/b//", map[string]string{"a": "1", "c": "/"}},
		{"/v1.2/a", "/v1.2/a", map[string]string{}},
		{"/v1.2/a", "/v1x2/a", nil},
		{"/{a}", "/", nil},
		{"/{a}", "", nil},
		{"/{a}", "1", nil},
		{"/{a}", "/1/", nil},
		{"/{a}/b", "/1", nil},
		{"/a/{+b}", "/a/", nil},
	} {
		r, err := ParseRoute(c.route)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.match(c.path); (got == nil) != (c.want == nil) || !maps.Equal(got, c.want) {
			t.Errorf("%s: %s is %v, want %v", c.route, c.path, got, c.want)
		}
	}
}

func TestParseRouteRefuses(t *testing.T) {
	for _, c := range []struct{ route, want string }{
		{"", "begin with a slash"}, {"videos", "begin with a slash"}, {"/", `the segment ""`},
		{"/a/", `the segment ""`}, {"//a", `the segment ""`},
		{"/a/../b", `the segment ".."`}, {"/./b", `the segment "."`}, {"/a b", "the segment"},
		{"/a%20b", "the segment"}, {"/a?b", "the segment"}, {"/\u00e4", "the segment"},
		{"/{a", "a variable is a segment"}, {"/{}", "a variable is a segment"}, {"/{a}b", "a variable is a segment"},
		{"/b{a}", "the segment"}, {"/{a-b}", "a variable is a segment"},
		{"/{++a}", "a variable is a segment"}, {"/{a}/{a}", `"a" twice`}, {"/{a}/{+a}", `"a" twice`},
		{"/{+a}/b", "all that is left"},
		{"/" + strings.Repeat("a", 512), "is 513 bytes long"},
	} {
		if _, err := ParseRoute(c.route); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one that says %q", c.route, err, c.want)
		}
	}
}

// Envoy's routes and CEL say by regular expressions what Go says.
func TestRoutePatternsSayTheSame(t *testing.T) {
	well := regexp.MustCompile("^(" + RoutePattern() + ")$")
	segment := rapid.SampledFrom([]string{
		"a", ".", "..", "...", ".a", "a.b", "{a}", "{b}", "{+a}", "{+b}", "{a", "a}", "", "~", "%", "\n", "1",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := "/" + strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "route"), "/")
		r, err := ParseRoute(text)
		names := r.Names()
		if err == nil != well.MatchString(text) && !strings.Contains(err.Error(), "twice") {
			t.Fatalf("%q: %v; the pattern says %t", text, err, well.MatchString(text))
		}
		if err != nil {
			return
		}
		path := "/" + strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "path"), "/")
		values := r.match(path)
		if matches := regexp.MustCompile("^(?s:" + r.Pattern() + ")$").MatchString(path); matches != (values != nil) {
			t.Fatalf("%q: %q is %v; the pattern says %t", text, path, values, matches)
		}
		if values != nil && len(values) != len(slices.Compact(names)) {
			t.Fatalf("%q: %q is %v", text, path, values)
		}
	})
}

func FuzzParseRoute(f *testing.F) {
	for _, s := range []string{"/videos/{camera}/{+key}", "/a/../b", "/{a}/{a}", "/v1.2/~x:@"} {
		f.Add(s, "/videos/a/b")
	}
	f.Fuzz(func(t *testing.T, route, path string) {
		r, err := ParseRoute(route)
		if err != nil {
			return
		}
		for name, value := range r.match(path) {
			if !slices.Contains(r.Names(), name) || value == "" || !r.whole(name) && strings.Contains(value, "/") || !strings.Contains(path, value) {
				t.Fatalf("%q: %q is %q in %q", route, name, value, path)
			}
		}
	})
}
