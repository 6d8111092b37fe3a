package reference

import "testing"

// A template makes only references of its own kind, and says so of each that it makes.
func FuzzMakes(f *testing.F) {
	f.Add("s3://videos/{header.x-a}/x/{header.x-b}.bin", "a", "b", "s3://videos/secret")
	f.Add("/{a}/{+b} s3://{header.x-a}/{path.a}{path.b|urldecode}", "videos", "/1/2", "s3://videos/12")
	f.Add("redis://jobs/{query.a|trimprefix:x}", "", "?a=xy", "redis://jobs/y")
	f.Fuzz(func(t *testing.T, text, a, b, other string) {
		template, err := ParseTemplate(text)
		if err != nil {
			return
		}
		if r, err := Parse(other); err == nil && template.Makes(r) && r.Scheme != template.Scheme() {
			t.Errorf("%s makes %s", text, other)
		}
		r := having(map[string]string{"x-a": a, "x-b": b})
		r.Target = b
		made, ok, err := template.Expand(r)
		if err != nil || !ok {
			return
		}
		ref, err := Parse(made)
		if err != nil {
			t.Fatalf("%s makes %q: %v", text, made, err)
		}
		if !template.Makes(ref) {
			t.Errorf("%s made %q", text, made)
		}
	})
}
