package reference

import (
	"errors"
	"maps"
	"net/url"
	"strings"
	"testing"
)

// A list of references reads as it was written, here and by whatever reads queries.
func TestNamedReferencesAsAHeader(t *testing.T) {
	for want, inputs := range map[string]Inputs{
		"":                                 {"": "s3://videos/a"},
		"mask=s3://masks/a.png":            {"mask": "s3://masks/a.png"},
		"a=s3://videos/a&b=redis://jobs/b": {"b": "redis://jobs/b", "": "s3://videos/c", "a": "s3://videos/a"},
		"a=s3://videos/%C3%A4%20b%26c=d%2B%25%3B": {"a": "s3://videos/ä b&c=d+%;"},
	} {
		if got := inputs.String(); got != want {
			t.Errorf("%v is %q, want %q", inputs, got, want)
		}
		got, err := ParseNamed(want)
		if err != nil || !maps.Equal(got, inputs.Named()) {
			t.Errorf("%q is %v, %v", want, got, err)
		}
		values, err := url.ParseQuery(want)
		if err != nil || len(values) != len(got) {
			t.Errorf("%q: %v, %v", want, values, err)
		}
		for name, ref := range got {
			if values.Get(name) != ref {
				t.Errorf("%q: %s is %q, want %q", want, name, values.Get(name), ref)
			}
		}
	}
}

func TestNamedReferencesThatAreNone(t *testing.T) {
	for text, says := range map[string]string{
		"mask":                                     "is not",
		"mask=/etc/passwd":                         "input mask: it must start with",
		"mask=s3://masks/..":                       `the path segment ".."`,
		"=s3://masks/a":                            "not the name of an input",
		"Mask=s3://masks/a":                        "not the name of an input",
		"../a=s3://masks/a":                        "not the name of an input",
		"a=s3://masks/a&a=s3://masks/b":            "is there twice",
		"a=s3://masks/%zz":                         "hexadecimal digits",
		strings.Repeat("a", 33) + "=s3://masks/a":  "not the name of an input",
		"a=s3://b/1&c=s3://bbb/1&d=s3://masks/%00": "bucket",
	} {
		if got, err := ParseNamed(text); err == nil || !strings.Contains(err.Error(), says) && says != "is not" {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	many := Inputs{}
	for _, c := range "abcdefghi" {
		many[string(c)] = "s3://masks/a"
	}
	if _, err := ParseNamed(many.String()); err == nil || !strings.Contains(err.Error(), "at most 8") {
		t.Errorf("nine: %v", err)
	}
	delete(many, "i")
	if _, err := ParseNamed(many.String()); err != nil {
		t.Errorf("eight: %v", err)
	}
}

// A request has those of the inputs that it names, and is refused for a wrong one.
func TestExpandAll(t *testing.T) {
	templates, err := ParseTemplates(Inputs{
		"": "s3://videos/{header.x-key}", "mask": "s3://masks/{header.x-key}.png", "subtitles": "s3://subs/{query.lang}/{header.x-key}"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key, target, field string
		want               Inputs
	}{
		{"", "/", "", Inputs{}},
		{"a", "/?lang=en", "", Inputs{"": "s3://videos/a", "mask": "s3://masks/a.png", "subtitles": "s3://subs/en/a"}},
		{"a", "/", "query lang", nil},
		{"..", "/?lang=en", "header x-key", nil},
	} {
		got, err := templates.Expand(Request{Target: c.target, Header: func(string) []string {
			if c.key == "" {
				return nil
			}
			return []string{c.key}
		}})
		wrong, _ := errors.AsType[*Error](err)
		if !maps.Equal(got, c.want) || (wrong != nil) != (c.field != "") || wrong != nil && wrong.Field != c.field {
			t.Errorf("%q, %s: %v, %v", c.key, c.target, got, err)
		}
	}
	if _, err := ParseTemplates(Inputs{"mask": "s3://masks"}); err == nil || !strings.HasPrefix(
		err.Error(), "input.mask: ",
	) {
		t.Errorf("a wrong template: %v", err)
	}
	if _, err := ParseTemplates(
		Inputs{"Mask": "s3://masks/a"},
	); err == nil || !strings.HasPrefix(err.Error(), "inputs: ") {
		t.Errorf("a wrong name: %v", err)
	}
}

func FuzzParseNamed(f *testing.F) {
	for _, s := range []string{
		"", "mask=s3://masks/a", "a=s3://videos/%C3%A4%20b%26&b=redis://jobs/+", "a=b", "&&", "=", "a=%", "a&b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		inputs, err := ParseNamed(s)
		if err != nil {
			return
		}
		if err := inputs.CheckNames(); err != nil {
			t.Error(err)
		}
		text := inputs.String()
		again, err := ParseNamed(text)
		if err != nil || !maps.Equal(inputs, again) || strings.ContainsFunc(
			text, func(r rune) bool { return r <= ' ' || r > '~' },
		) {
			t.Errorf("%q is %v, written as %q, which is %v, %v", s, inputs, text, again, err)
		}
	})
}
