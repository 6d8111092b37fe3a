package source_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestParseReference(t *testing.T) {
	for _, in := range []struct{ text, bucket, key string }{
		{"s3://videos/cam1.mjpeg", "videos", "cam1.mjpeg"},
		{"s3://a-b.c9/x/y//z/", "a-b.c9", "x/y//z/"},
		{"s3://videos/Größe/…/...", "videos", "Größe/…/..."},
		{"s3://videos/a?versionId=1#x%2e%2e/b c", "videos", "a?versionId=1#x%2e%2e/b c"},
		{"s3://videos/" + strings.Repeat("k", 1024), "videos", strings.Repeat("k", 1024)},
		{"s3://1234.5678/k", "1234.5678", "k"},
		{"redis://jobs/42", "jobs", "42"},
		{"redis://Jobs_1.a-b/a:b/c", "Jobs_1.a-b", "a:b/c"},
		{"http://10.0.0.1:8080/a//b", "10.0.0.1:8080", "a//b"},
		{"https://models.example.com/v1/a?b=c&d#e%2e", "models.example.com", "v1/a?b=c&d#e%2e"},
	} {
		got, err := source.ParseReference(in.text)
		if err != nil {
			t.Errorf("%s: %v", in.text, err)
		}
		scheme, _, _ := strings.Cut(in.text, ":")
		want := source.Reference{Scheme: scheme, Bucket: in.bucket, Key: in.key}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in.text, diff)
		}
		if got.String() != in.text {
			t.Errorf("%s comes back as %s", in.text, got)
		}
	}
}

func TestParseReferenceSaysWhatIsWrong(t *testing.T) {
	for text, says := range map[string]string{
		"":                                         "must start with s3://",
		"ftp://169.254.169.254/latest":             "must start with s3://",
		"rediss://jobs/k":                          "must start with s3://",
		"redis://jobs":                             "it has no key: write it like scheme://bucket/key",
		"redis://a:b/k":                            "may only hold letters",
		"redis://me@jobs/k":                        "may only hold letters",
		"redis:///k":                               "1 to 63 characters",
		"redis://jobs/../k":                        `the path segment ".."`,
		"redis://jobs/a\r\nFLUSHALL":               "has control characters",
		"https://models.example.com":               "it has no key",
		"https://models.example.com/":              "the key is empty",
		"https://me:pw@models.example.com/a":       "must have a port of 1 to 65535",
		"https://Models/a":                         "may only hold lower-case letters",
		"https://a..b/a":                           "two dots in a row",
		"https://a:0/b":                            "must have a port of 1 to 65535",
		"https://a:123456/b":                       "must have a port of 1 to 65535",
		"http://[::1]/a":                           "may only hold lower-case letters",
		"http://a?b/c":                             "may only hold lower-case letters",
		"http://a/../b":                            `the path segment ".."`,
		"S3://videos/k":                            "must start with s3://",
		"s3://videos":                              "has no key",
		"s3://videos/":                             "the key is empty",
		"s3:///k":                                  "3 to 63 characters",
		"s3://ab/k":                                "3 to 63 characters",
		"s3://" + strings.Repeat("b", 64) + "/k":   "3 to 63 characters",
		"s3://Videos/k":                            "may only hold lower-case letters",
		"s3://user:pass@videos/k":                  "may only hold lower-case letters",
		"s3://videos-/k":                           "begin and end with a letter or digit",
		"s3://../etc":                              "3 to 63 characters",
		"s3://a..b/k":                              "two dots in a row",
		"s3://192.168.0.1/k":                       "must not look like an IP address",
		"s3://xn--videos/k":                        "must not begin with xn--",
		"s3://videos--x-s3/k":                      "must not end with --x-s3",
		"s3://videos//etc/passwd":                  "begins with a slash",
		"s3://videos/../other/k":                   `the path segment ".."`,
		"s3://videos/a/./k":                        `the path segment "."`,
		"s3://videos/a/..":                         `the path segment ".."`,
		"s3://videos/a\x00b":                       "has control characters",
		"s3://videos/a\r\nx: y":                    "has control characters",
		"s3://videos/a\u0085b":                     "has control characters",
		"s3://videos/a ":                           "ends with a space",
		"s3://videos/\xff":                         "not UTF-8",
		"s3://videos/" + strings.Repeat("k", 1025): "longer than 1024 bytes",
		"s3://videos/" + strings.Repeat("k", 1023) + "\u00e9": "longer than 1024 bytes",
	} {
		_, err := source.ParseReference(text)
		var p *problem.Problem
		if !errors.As(err, &p) {
			t.Errorf("%q is accepted", text)
			continue
		}
		if p.Status != http.StatusBadRequest || p.Title != "InputReferenceMalformed" || p.Field != "headstart.dev/input" {
			t.Errorf("%q: %+v", text, p)
		}
		if !strings.Contains(p.Detail, says) {
			t.Errorf("%q: %q does not say %q", text, p.Detail, says)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	for _, seed := range []string{"s3://videos/cam1.mjpeg", "s3://a-b.c9/x//y/", "s3://../k", "s3://videos/\u0085", "s3://1.2.3.4/k", "redis://jobs/a:b", "https://a.b:1/c?d", "http://a@b/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := source.ParseReference(text)
		if err != nil {
			if p := problem.Of(err); p.Status != http.StatusBadRequest || len(p.Detail) > 512 || !utf8.ValidString(p.Detail) {
				t.Fatalf("%q: %+v", text, p)
			}
			return
		}
		if ref.String() != text {
			t.Fatalf("%q comes back as %q", text, ref)
		}
		if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) || strings.Contains(ref.Bucket, "/") {
			t.Fatalf("%q is accepted", text)
		}
		for segment := range strings.SplitSeq(ref.Key, "/") {
			if segment == ".." || segment == "." {
				t.Fatalf("%q is accepted", text)
			}
		}
	})
}
