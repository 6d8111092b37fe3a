package reference

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The examples follow the rules in their order in the Amazon S3 User Guide, "General
// purpose bucket naming rules".
func TestBucketProblem(t *testing.T) {
	for _, name := range []string{
		"abc", "my-bucket", "log.delivery.march", "1.2.3", "1.2.3.4a", "a--b", strings.Repeat("a", 63),
	} {
		if problem := S3Buckets.Problem(name); problem != "" {
			t.Errorf("%q: %s", name, problem)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"", "3 to 63"},
		{"ab", "3 to 63"},
		{strings.Repeat("a", 64), "3 to 63"},
		{"my_bucket", "lower-case letters"},
		{"Bucket", "lower-case letters"},
		{"büro", "lower-case letters"},
		{"a b", "lower-case letters"},
		{"a/b", "lower-case letters"},
		{"a\x00b", "lower-case letters"},
		{"-abc", "begin and end"},
		{"abc.", "begin and end"},
		{"a..b", "two dots"},
		{"192.168.5.4", "IP address"},
		{"999.1.1.1", "IP address"},
		{"xn--bucket", "begin with xn--"},
		{"sthree-configurator-a", "begin with sthree-"},
		{"amzn-s3-demo-a", "begin with amzn-s3-demo-"},
		{"point-s3alias", "end with -s3alias"},
		{"lambda--ol-s3", "end with --ol-s3"},
		{"global.mrap", "end with .mrap"},
		{"zone--x-s3", "end with --x-s3"},
		{"rows--table-s3", "end with --table-s3"},
	} {
		if problem := S3Buckets.Problem(c.name); !strings.Contains(problem, c.want) {
			t.Errorf("%q: problem %q, want one that says %q", c.name, problem, c.want)
		}
	}
}

func TestKeyspaceProblem(t *testing.T) {
	for _, name := range []string{"a", "Jobs", "a_b.c-d", strings.Repeat("a", 63)} {
		if problem := RedisBuckets.Problem(name); problem != "" {
			t.Errorf("%q: %s", name, problem)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"", "1 to 63"}, {strings.Repeat("a", 64), "1 to 63"}, {"a:b", "letters, digits"}, {"a b", "letters, digits"},
		{"a*", "letters, digits"},
		{"ä", "letters, digits"}, {"-a", "begin and end"}, {"a.", "begin and end"},
	} {
		if problem := RedisBuckets.Problem(c.name); !strings.Contains(problem, c.want) {
			t.Errorf("%q: problem %q, want one that says %q", c.name, problem, c.want)
		}
	}
}

func TestHostProblem(t *testing.T) {
	for _, name := range []string{
		"a", "models.example.com", "10.0.0.1:8080", "a-b:1", "a:65535", strings.Repeat("a", 253),
	} {
		if problem := HTTPBuckets.Problem(name); problem != "" {
			t.Errorf("%q: %s", name, problem)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"", "1 to 253"}, {":80", "1 to 253"}, {strings.Repeat("a", 254), "1 to 253"}, {"A", "lower-case"},
		{"a_b", "lower-case"}, {"a@b", "lower-case"},
		{"a#b", "lower-case"}, {"a%2f", "lower-case"}, {"-a", "begin and end"}, {"a.", "begin and end"},
		{"a..b", "two dots"},
		{"a:", "a port"}, {"a:0", "a port"}, {"a:123456", "a port"}, {"a:65536", "a port"}, {"a:080", "a port"},
		{"a:80:80", "a port"}, {"a:b", "a port"},
	} {
		if problem := HTTPBuckets.Problem(c.name); !strings.Contains(problem, c.want) {
			t.Errorf("%q: problem %q, want one that says %q", c.name, problem, c.want)
		}
	}
}

// CEL and the schema of the chart's values say by regular expressions what Go says.
func TestPatternsSayTheSame(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"a", "0", "A", "-", ".", "_", ":", "xn--", "sthree-", "amzn-s3-demo-", "-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3", "192.168.5.4",
		"@", "*", " ", "\n", "\u00e4", "1", "65535", "65536", "00", strings.Repeat("b", 59), strings.Repeat("c", 190)})
	for _, k := range Kinds() {
		is, refused := regexp.MustCompile("^("+k.Bucket.Pattern()+")$"), regexp.MustCompile(
			"^("+k.Bucket.Refused()+")$",
		)
		rapid.Check(t, func(t *rapid.T) {
			name := strings.Join(rapid.SliceOfN(pieces, 0, 5).Draw(t, "pieces"), "")
			problem := k.Bucket.Problem(name)
			if matches := is.MatchString(name) && !refused.MatchString(name); matches != (problem == "") {
				t.Fatalf("%s: %q matches: %t; Go says it %q", k.Scheme, name, matches, problem)
			}
		})
	}
}
