package reference

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference/referencetest"
)

func having(headers map[string]string) Request {
	return Request{Target: "/", Header: func(name string) []string {
		if v, ok := headers[name]; ok {
			return []string{v}
		}
		return nil
	}}
}

func TestParseTemplateRefuses(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"empty", "", "must start with s3://, redis://, http:// or https://: no other store is supported"},
		{"other store", "ftp://videos/a", "must start with s3://, redis://"},
		{"encrypted Redis", "rediss://jobs/a", "must start with s3://, redis://"},
		{"no key of Redis", "redis://jobs", "has no key: write it like scheme://bucket/key"},
		{"keyspace", "redis://a:b/c", `bucket "a:b" may only hold letters`},
		{"keyspace of two parts", "redis://a{header.b}/c", "bucket: must be a name or exactly one placeholder"},
		{"long keyspace", "redis://" + strings.Repeat("a", 64) + "/c", "must be 1 to 63 characters long"},
		{"no path", "https://models.example.com", "has no key: write it like scheme://bucket/key"},
		{"user", "https://me:pw@models.example.com/a", `bucket "me:pw@models.example.com" must have a port`},
		{"upper-case host", "https://Models/a", "may only hold lower-case letters"},
		{"IPv6", "http://[::1]/a", "may only hold lower-case letters"},
		{"port 0", "http://a:080/a", "must have a port of 1 to 65535"},
		{"query of a host", "http://a?b/c", "may only hold lower-case letters"},
		{"climbing out of a host", "http://a/../b", `key has the path segment ".."`},
		{"upper-case scheme", "S3://videos/a", "must start with s3://"},
		{"no key", "s3://videos", "has no key: write it like scheme://bucket/key"},
		{"empty key", "s3://videos/", "key is empty"},
		{"empty bucket", "s3:///a", "bucket: must be a name or exactly one placeholder"},
		{"bucket of two parts", "s3://my-{header.x-b}/a", "bucket: must be a name or exactly one placeholder"},
		{"bucket name", "s3://My/a", `bucket "My" must be 3 to 63 characters long`},
		{"slash in placeholder", "s3://{header.a/b}/c", "bucket: has a { without a }"},
		{"unclosed", "s3://videos/{header.x-key", "key: has a { without a }"},
		{"stray brace", "s3://videos/a}b", "key: has a } without a {"},
		{
			"other placeholder", "s3://videos/{cookie.key}",
			`key: has the unknown placeholder "cookie.key": known are {header.<name>}, {query.<name>} and {path.<name>}`,
		},
		{"no name of a parameter", "s3://videos/{query.}", `"" is not a parameter's name`},
		{"a parameter's name that is encoded", "s3://videos/{query.a%20b}", `"a%20b" is not a parameter's name`},
		{"a variable's name", "s3://videos/{path.a-b}", `"a-b" is not a variable's name`},
		{
			"other modifier", "s3://videos/{query.key|lower}",
			`has the unknown modifier "lower": known are |urldecode and |trimprefix:<text>`,
		},
		{"no modifier", "s3://videos/{query.key|}", `has the unknown modifier ""`},
		{"nothing to trim", "s3://videos/{query.key|trimprefix:}", `has the unknown modifier "trimprefix:"`},
		{"a line end to trim", "s3://videos/{query.key|trimprefix:a\n}", "has the unknown modifier"},
		{"a brace to trim", "s3://videos/{query.key|trimprefix:{}", "has the unknown modifier"},
		{"a slash to trim from a bucket", "s3://{query.bucket|trimprefix:a/}/b", "bucket: has a { without a }"},
		{
			"five modifiers", "s3://videos/{query.key" + strings.Repeat("|urldecode", 5) + "}",
			"has 5 modifiers, at most 4 are allowed",
		},
		{"a wrong path", "/a/{b s3://videos/a", "path: has the segment"},
		{"a path alone", "/a/{b}", "must start with s3://"},
		{"no name", "s3://videos/{header.}", `"" is not a header name`},
		{"not a token", "s3://videos/{header.x key}", `"x key" is not a header name`},
		{"upper case", "s3://videos/{header.X-Key}", "write header names in lower case: {header.x-key}"},
		{"own header", "s3://videos/{header.x-headstart-input}", "x-headstart-* headers are the gateway's own"},
		{"pseudo header", "s3://videos/{header.:path}", "a pseudo header cannot name an input"},
		{"host", "s3://videos/{header.host}", "it is the authority"},
		{"credentials", "s3://videos/{header.authorization}", "it holds credentials"},
		{"climbing", "s3://videos/../{header.x-key}", `key has the path segment ".."`},
		{"leading slash", "s3://videos//{header.x-key}", "key begins with a slash"},
		{"trailing space", "s3://videos/a ", "key ends with a space"},
		{"control", "s3://videos/a\nb", "key has control characters"},
		{"not UTF-8", "s3://videos/\xff", "key is not UTF-8"},
		{"long key", "s3://videos/" + strings.Repeat("a", 1025), "key is longer than 1024 bytes"},
		{"long", "s3://videos/" + strings.Repeat("a", 2048), "is 2060 bytes long, at most 2048 are allowed"},
		{
			"many placeholders", "s3://videos/" + strings.Repeat("{header.a}", 9),
			"has 9 placeholders, at most 8 are allowed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseTemplate(c.template)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	const template = "s3://{header.x-bucket}/{header.x-key}"
	type headers = map[string]string
	for _, c := range []struct {
		name, template string
		headers        headers
		want           string // empty: no input
		err            string
	}{
		{"both", template, headers{"x-bucket": "videos", "x-key": "cam1/a.mjpeg"}, "s3://videos/cam1/a.mjpeg", ""},
		{"none", template, headers{"x-other": "1"}, "", ""},
		{"fixed", "s3://videos/a", nil, "s3://videos/a", ""},
		{
			"mixture", "s3://videos/{header.x-cam}/{header.x-day}-{header.x-cam}.mjpeg",
			headers{"x-cam": "c1", "x-day": "mon"}, "s3://videos/c1/mon-c1.mjpeg", "",
		},
		{
			"bucket only", "s3://{header.x-bucket}/model", headers{"x-bucket": "eu.models-1"}, "s3://eu.models-1/model",
			"",
		},
		{"redis", "redis://jobs/{header.x-job}", headers{"x-job": "a:b/c"}, "redis://jobs/a:b/c", ""},
		{"keyspace of a header", "redis://{header.x-space}/k", headers{"x-space": "Jobs_1"}, "redis://Jobs_1/k", ""},
		{
			"https", "https://models.example.com:8443/v1/{header.x-model}", headers{"x-model": "a b?c=d&e#f%2e"},
			"https://models.example.com:8443/v1/a b?c=d&e#f%2e", "",
		},
		{"host of a header", "http://{header.x-host}/k", headers{"x-host": "10.0.0.1:80"}, "http://10.0.0.1:80/k", ""},
		{
			"no decoding", template, headers{"x-bucket": "videos", "x-key": "a%2F..%2Fb?c#d"},
			"s3://videos/a%2F..%2Fb?c#d", "",
		},
		{
			"braces are text", template, headers{"x-bucket": "videos", "x-key": "{header.x-bucket}"},
			"s3://videos/{header.x-bucket}", "",
		},
		{"dots in names", template, headers{"x-bucket": "videos", "x-key": "a../.b/..."}, "s3://videos/a../.b/...", ""},
		{
			"longest key", template, headers{"x-bucket": "videos", "x-key": strings.Repeat("ü", 512)},
			"s3://videos/" + strings.Repeat("ü", 512), "",
		},

		{
			"no bucket", template, headers{"x-key": "a"}, "",
			"header x-bucket is missing, and the input cannot be named without it",
		},
		{
			"no key", template, headers{"x-bucket": "videos"}, "",
			"header x-key is missing, and the input cannot be named without it",
		},
		{
			"empty key", template, headers{"x-bucket": "videos", "x-key": ""}, "",
			"header x-key is not fit for an object key: it is empty",
		},
		{
			"empty bucket", template, headers{"x-bucket": "", "x-key": "a"}, "",
			"header x-bucket is not a bucket name: it must be 3 to 63 characters long",
		},
		{
			"user in a host", "https://{header.x-host}/k", headers{"x-host": "me@a"}, "",
			"header x-host is not a bucket name: it may only hold lower-case letters, digits, dots and hyphens, and a port",
		},
		{
			"colon in a keyspace", "redis://{header.x-space}/k", headers{"x-space": "a:b"}, "",
			"header x-space is not a bucket name: it may only hold letters, digits, dots, hyphens and underscores",
		},
		{
			"not UTF-8", template, headers{"x-bucket": "videos", "x-key": "\xc3"}, "",
			"header x-key is not fit for an object key: it is not UTF-8",
		},
		{
			"control", template, headers{"x-bucket": "videos", "x-key": "a\u0085b"}, "",
			"header x-key is not fit for an object key: it has control characters",
		},
		{
			"too long", template, headers{"x-bucket": "videos", "x-key": strings.Repeat("ü", 513)}, "",
			"header x-key is not fit for an object key: it is longer than 1024 bytes",
		},
		{
			"leading slash", template, headers{"x-bucket": "videos", "x-key": "/a"}, "",
			"header x-key makes an object key that begins with a slash",
		},
		{
			"trailing space", template, headers{"x-bucket": "videos", "x-key": "a "}, "",
			"header x-key makes an object key that ends with a space",
		},
		{
			"dot", template, headers{"x-bucket": "videos", "x-key": "a/./b"}, "",
			`header x-key makes an object key that has the path segment "."`,
		},
		{
			"dots out of two", "s3://videos/{header.x-a}.{header.x-b}", headers{"x-a": "c/", "x-b": "./d"}, "",
			`header x-a, x-b makes an object key that has the path segment ".."`,
		},
		{
			"long out of two", "s3://videos/{header.x-a}{header.x-b}",
			headers{"x-a": strings.Repeat("a", 600), "x-b": strings.Repeat("b", 600)}, "",
			"header x-a, x-b makes an object key that is longer than 1024 bytes",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			template, err := ParseTemplate(c.template)
			if err != nil {
				t.Fatal(err)
			}
			ref, ok, err := template.Expand(having(c.headers))
			got := ""
			if err != nil {
				got = err.Error()
				if _, isReference := errors.AsType[*Error](err); !isReference {
					t.Errorf("error is a %T", err)
				}
			}
			if ref != c.want || ok != (c.want != "") || got != c.err {
				t.Errorf("got %q, %t, error %q; want %q, error %q", ref, ok, got, c.want, c.err)
			}
		})
	}
}

func TestMakes(t *testing.T) {
	for _, c := range []struct {
		template, ref string
		want          bool
	}{
		{"s3://videos/{header.x-key}", "s3://videos/cam1/a.mjpeg", true},
		{"s3://videos/{header.x-key}", "s3://secrets/cam1/a.mjpeg", false},
		{"s3://videos/{header.x-key}", "redis://videos/cam1", false},
		{"s3://{header.x-bucket}/{header.x-key}", "s3://secrets/a", true}, // any of the store's
		{"s3://videos/a", "s3://videos/a", true},
		{"s3://videos/a", "s3://videos/ab", false},
		{"s3://videos/a", "s3://videos/b", false},
		{"s3://videos/tenant-1/{header.x-key}", "s3://videos/tenant-2/a", false},
		{"s3://videos/{header.x-a}/x/{header.x-b}.bin", "s3://videos/1/x/2/x/3.bin", true},
		{"s3://videos/{header.x-a}/x/{header.x-b}.bin", "s3://videos/1/y/3.bin", false},
		{"s3://videos/{header.x-a}.bin", "s3://videos/a.bin.txt", false},
		{"/v1/{job} s3://videos/{path.job}/in", "s3://videos/7/in", true},
		{"/v1/{job} s3://videos/{path.job}/in", "s3://videos/7/8/in", false},
		{"/v1/{+job} s3://videos/{path.job}/in", "s3://videos/7/8/in", true},
	} {
		template, err := ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := Parse(c.ref)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.Makes(ref); got != c.want {
			t.Errorf("%s makes %s: %t", c.template, c.ref, got)
		}
	}
}

// What a template makes, it says that it makes.
func TestWhatIsMadeIsKnown(t *testing.T) {
	template, err := ParseTemplate("/{b} s3://{header.x-bucket}/{header.x-a}-{path.b}{header.x-a}/c{query.d|urldecode}")
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.StringMatching(`[a-c/.-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		headers := map[string]string{"x-bucket": "videos", "x-a": text.Draw(t, "a")}
		r := having(headers)
		r.Target = "/" + rapid.StringMatching(`[a-c.-]{1,6}`).Draw(t, "b") + "?d=" + text.Draw(t, "d")
		made, ok, err := template.Expand(r)
		if err != nil || !ok {
			return
		}
		ref, err := Parse(made)
		if err != nil {
			t.Fatal(err)
		}
		if !template.Makes(ref) {
			t.Fatalf("made %s", made)
		}
	})
}

func TestTemplatesTellTheirBucket(t *testing.T) {
	for _, c := range []struct {
		template, scheme, bucket string
		literal                  bool
	}{
		{"s3://videos/a", "s3", "videos", true},
		{"redis://{header.x-space}/a", "redis", "", false},
		{"https://a:1/b", "https", "a:1", true},
	} {
		template, err := ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		bucket, literal := template.Bucket()
		if template.Scheme() != c.scheme || bucket != c.bucket || literal != c.literal {
			t.Errorf("%s: %s, %q, %t", c.template, template.Scheme(), bucket, literal)
		}
	}
}

// Two requests get the same reference only if bucket and key are the same.
func TestReferencesAreUnambiguous(t *testing.T) {
	template, err := ParseTemplate("s3://{header.x-bucket}/{header.x-key}")
	if err != nil {
		t.Fatal(err)
	}
	bucket := rapid.StringMatching(`[a-z0-9./-]{1,8}`)
	key := rapid.OneOf(rapid.StringMatching(`[a-z./ -]{1,8}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		b, k := bucket.Draw(t, "bucket"), key.Draw(t, "key")
		ref, ok, err := template.Expand(having(map[string]string{"x-bucket": b, "x-key": k}))
		if err != nil {
			return
		}
		gotBucket, gotKey, _ := strings.Cut(strings.TrimPrefix(ref, "s3://"), "/")
		if !ok || gotBucket != b || gotKey != k {
			t.Fatalf("%q and %q make %q, ok %t", b, k, ref, ok)
		}
	})
}

func TestCases(t *testing.T) {
	for _, c := range referencetest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			template, err := ParseTemplate(c.Template)
			if err != nil {
				t.Fatal(err)
			}
			ref, ok, err := template.Expand(Request{Target: c.Target, Header: func(name string) []string {
				var values []string
				for _, h := range c.Header {
					if h[0] == name {
						values = append(values, h[1])
					}
				}
				return values
			}})
			var wrong *Error
			if c.Field != "" {
				if !errors.As(err, &wrong) || !errorField.MatchString(wrong.Field) || wrong.Field != c.Field || !strings.Contains(wrong.Problem, c.Says) {
					t.Errorf("%q, %v; want a refusal of %s: %s", ref, err, c.Field, c.Says)
				}
			} else if err != nil || ref != c.Want || ok != (c.Want != "") {
				t.Errorf("%q, %t, %v; want %q", ref, ok, err, c.Want)
			}
		})
	}
}

// Values that were never encoded, as an entry's of a stream, are the same when a gateway brings
// them encoded.
func TestPlainValuesAreNotDecoded(t *testing.T) {
	template, err := ParseTemplate("s3://videos/{header.ce-subject|urldecode|trimprefix:a/}")
	if err != nil {
		t.Fatal(err)
	}
	r := having(map[string]string{"ce-subject": "a/b%20c"})
	r.Plain = true
	if ref, _, err := template.Expand(r); ref != "s3://videos/b%20c" || err != nil {
		t.Errorf("%q, %v", ref, err)
	}
}

var errorField = regexp.MustCompile("^" + FieldPattern() + "$")

// No template and no request can make a reference that leaves its bucket.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{
		"s3://{header.x-a}/{header.x-b}", "s3://videos/{header.x-a}.{header.x-b}", "s3://videos/a",
		"s3://{header.x-a}/{header.x-a}/b", "redis://{header.x-a}/{header.x-b}", "https://{header.x-a}/{header.x-b}",
		"http://a:1/{header.x-b}",
	} {
		f.Add(s, "videos", "cam/1.mjpeg", "/")
		f.Add(s, "..", "/./\x00", "/")
		f.Add(s, "videos/", "\xff {}", "/")
	}
	for _, c := range referencetest.Cases {
		f.Add(c.Template, "videos", "a%2f..", c.Target)
	}
	f.Fuzz(func(t *testing.T, s, a, b, target string) {
		template, err := ParseTemplate(s)
		if err != nil {
			return
		}
		ref, ok, err := template.Expand(Request{Target: target, Header: func(name string) []string {
			return []string{map[bool]string{true: a, false: b}[name == "x-a"]}
		}})
		if err != nil {
			wrong, isReference := errors.AsType[*Error](err)
			if !isReference || ok || ref != "" {
				t.Fatalf("%q, %t, %#v", ref, ok, err)
			}
			if !errorField.MatchString(wrong.Field) {
				t.Fatalf("%q is no field", wrong.Field)
			}
			last := ""
			for name := range strings.SplitSeq(wrong.Field, ", ") {
				from, own, apart := strings.Cut(name, " ")
				if !apart && from != "path" {
					from, own = last, name
				}
				last = from
				if !strings.Contains(s, "{"+from+"."+own) {
					t.Fatalf("%q does not name %q of %q", s, name, wrong.Field)
				}
			}
			return
		}
		if !ok {
			return
		}
		if r, err := Parse(ref); err != nil || r.Scheme != template.Scheme() || r.String() != ref {
			t.Fatalf("%q makes %q, %v", s, ref, err)
		}
		if bucket, literal := template.Bucket(); literal && !strings.HasPrefix(
			ref, template.Scheme()+"://"+bucket+"/",
		) {
			t.Fatalf("%q makes %q", s, ref)
		}
	})
}
