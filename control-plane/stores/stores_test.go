package stores_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/stores"
)

const valid = `
- name: default
  namespaces: [video, default]
  s3:
    endpoint: http://10.88.0.2:9000
    pathStyle: true
    buckets: [videos, models.v2]
    credentialsSecret: default-s3
- name: archive
  s3:
    endpoint: https://s3.eu-central-1.amazonaws.com
    region: eu-central-1
    buckets: [old]
    credentialsSecret: archive
`

var want = stores.Stores{
	{Name: "default", Endpoint: "http://10.88.0.2:9000", Region: "us-east-1", PathStyle: true, Buckets: []string{"videos", "models.v2"}, Secret: "default-s3", Namespaces: []string{"video", "default"}},
	{Name: "archive", Endpoint: "https://s3.eu-central-1.amazonaws.com", Region: "eu-central-1", Buckets: []string{"old"}, Secret: "archive"},
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stores.yaml")
	if err := os.WriteFile(path, []byte(valid), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := stores.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := stores.Load(path + ".gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}

func TestGet(t *testing.T) {
	s, ok := want.Get("archive")
	if !ok || s.Name != "archive" || !s.Allows("old") || s.Allows("videos") || s.Allows("") {
		t.Errorf("archive: %+v, %t", s, ok)
	}
	if s, ok := want.Get("nowhere"); ok {
		t.Errorf("nowhere is %+v", s)
	}
	if diff := cmp.Diff([]string{"default", "archive"}, want.Names()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAStoreIsForTheNamespacesItNames(t *testing.T) {
	for namespace, names := range map[string][]string{"video": {"default", "archive"}, "other": {"archive"}, "": {"archive"}} {
		if diff := cmp.Diff(names, want.For(namespace).Names()); diff != "" {
			t.Errorf("%q: -want +got\n%s", namespace, diff)
		}
	}
}

func TestAnEmptyListIsValid(t *testing.T) {
	for _, text := range []string{"", "[]", "# none yet\n"} {
		if got, err := stores.Parse([]byte(text)); len(got) != 0 || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseRefusesAField(t *testing.T) {
	const label = "use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit"
	for _, tt := range []struct{ old, replacement, want string }{
		{"name: default", "name: Default", `[0].name: "Default" is not a DNS label; ` + label},
		{"name: default", "name: ''", "[0].name: is missing; " + label},
		{"name: archive", "name: default", `[1].name: "default" is the name of [0] too; give each store a name of its own`},
		{"http://10.88.0.2:9000", "''", "[0].s3.endpoint: is missing; write it like https://s3.example.com:9000"},
		{"http://10.88.0.2:9000", "10.88.0.2:9000", `[0].s3.endpoint: "10.88.0.2:9000" is not a URL; write it like https://s3.example.com:9000`},
		{"http://10.88.0.2:9000", "file:///etc", `[0].s3.endpoint: "file:///etc" is not an http or https URL; write it like https://s3.example.com:9000`},
		{"http://10.88.0.2:9000", "http:opaque", `[0].s3.endpoint: "http:opaque" has no valid host; write it like https://s3.example.com:9000`},
		{"http://10.88.0.2:9000", "http://me:secret@s3:9000", `[0].s3.endpoint: "http://***@s3:9000" holds a user or password; put the credentials into the secret that credentialsSecret names`},
		{"http://10.88.0.2:9000", "http://s3:9000/videos", `[0].s3.endpoint: "http://s3:9000/videos" has more than scheme, host and port; remove what follows the host and port`},
		{"http://10.88.0.2:9000", "http://s3:9000?", `[0].s3.endpoint: "http://s3:9000?" has more than scheme, host and port; remove what follows the host and port`},
		{"http://10.88.0.2:9000", `"http://s3:9000#"`, `[0].s3.endpoint: "http://s3:9000#" has more than scheme, host and port; remove what follows the host and port`},
		{"http://10.88.0.2:9000", "http://s3:70000", `[0].s3.endpoint: "http://s3:70000" has no valid port; use 1 to 65535 or leave the port out`},
		{"http://10.88.0.2:9000", `"http://s3:"`, `[0].s3.endpoint: "http://s3:" has no valid port; use 1 to 65535 or leave the port out`},
		{"region: eu-central-1", "region: EU", `[1].s3.region: "EU" is not a DNS label; ` + label},
		{"[old]", "[]", "[1].s3.buckets: is empty; name at least one bucket that functions may read"},
		{"[old]", "['*']", `[1].s3.buckets[0]: "*" is a wildcard; name each bucket`},
		{"[old]", "[old, ../x]", `[1].s3.buckets[1]: "../x" is not a bucket's name; use 3 to 63 of a-z, 0-9, - and single dots, starting and ending with a letter or digit`},
		{"[old]", "[192.168.0.1]", `[1].s3.buckets[0]: "192.168.0.1" is not a bucket's name; use 3 to 63 of a-z, 0-9, - and single dots, starting and ending with a letter or digit`},
		{"[old]", "[a..b]", `[1].s3.buckets[0]: "a..b" is not a bucket's name; use 3 to 63 of a-z, 0-9, - and single dots, starting and ending with a letter or digit`},
		{"[video, default]", "[video, '*']", `[0].namespaces[1]: "*" is not a DNS label; name a namespace: ` + label},
		{"credentialsSecret: archive", "credentialsSecret: ../../etc/passwd", `[1].s3.credentialsSecret: "../../etc/passwd" is not a DNS label; name the secret that holds the credentials: ` + label},
		{"credentialsSecret: archive", "", "[1].s3.credentialsSecret: is missing; name the secret that holds the credentials: " + label},
	} {
		t.Run(tt.replacement, func(t *testing.T) {
			got, err := stores.Parse([]byte(strings.Replace(valid, tt.old, tt.replacement, 1)))
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"name: default", "not a list of stores"},
		{"- name: a\n  redis: {}", `unknown field "redis"`},
		{"- name: a\n  s3: {secretKey: hunter2}", `unknown field "secretKey"`},
		{"- name: a\n  name: b", `key "name" already set`},
		{"- name: a", "[0].s3: is missing; say where the store is: endpoint, buckets, credentialsSecret"},
		{"- {", "not a list of stores"},
		{strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes; list fewer buckets"},
	} {
		_, err := stores.Parse([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.40q: got %v, want %s", tt.text, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("- name: a\n  s3: {endpoint: 'http://a', buckets: [abc], credentialsSecret: a}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ss, err := stores.Parse(data)
		if err != nil {
			return
		}
		for _, s := range ss {
			if s.Name == "" || s.Endpoint == "" || s.Region == "" || s.Secret == "" || len(s.Buckets) == 0 || strings.Contains(s.Endpoint, "@") {
				t.Errorf("accepted %+v", s)
			}
			if got, ok := ss.Get(s.Name); !ok || !cmp.Equal(got, s) {
				t.Errorf("Get(%q) = %+v, %t", s.Name, got, ok)
			}
		}
	})
}
