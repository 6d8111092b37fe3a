package stores_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const valid = `
- name: default
  namespaces: [video, default]
  shared: [models.v2]
  fresh: {models.v2: always, videos: ask}
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
- name: jobs
  redis:
    address: redis.example.com:6379
    tls: true
    db: 3
    keyspaces: [jobs, Frames_1]
    credentialsSecret: jobs
- name: cache
  fresh: {cache: 30s}
  redis: {address: "10.0.0.7:6379", keyspaces: [cache]}
- name: models
  http: {hosts: [models.example.com, "10.0.0.7:8080"], credentialsSecret: models, privateAddresses: true}
- name: web
  http: {hosts: [www.example.com]}
`

var want = stores.Stores{
	{Name: "default", Kind: "s3", Endpoint: "http://10.88.0.2:9000", Region: "us-east-1", PathStyle: true, Buckets: []string{"videos", "models.v2"}, Shared: []string{"models.v2"},
		Fresh: map[string]time.Duration{"models.v2": stores.FreshAlways, "videos": 0}, Secret: "default-s3", Namespaces: []string{"video", "default"}},
	{Name: "archive", Kind: "s3", Endpoint: "https://s3.eu-central-1.amazonaws.com", Region: "eu-central-1", Buckets: []string{"old"}, Secret: "archive"},
	{Name: "jobs", Kind: "redis", Endpoint: "redis.example.com:6379", TLS: true, Database: 3, Buckets: []string{"jobs", "Frames_1"}, Secret: "jobs"},
	{Name: "cache", Kind: "redis", Endpoint: "10.0.0.7:6379", Buckets: []string{"cache"}, Fresh: map[string]time.Duration{"cache": 30 * time.Second}},
	{Name: "models", Kind: "http", Buckets: []string{"models.example.com", "10.0.0.7:8080"}, Secret: "models"},
	{Name: "web", Kind: "http", Public: true, Buckets: []string{"www.example.com"}},
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
	if diff := cmp.Diff([]string{"default", "archive", "jobs", "cache", "models", "web"}, want.Names()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAStoreIsForTheNamespacesItNames(t *testing.T) {
	for namespace, names := range map[string][]string{
		"video": {"default", "archive", "jobs", "cache", "models", "web"}, "other": {"archive", "jobs", "cache", "models", "web"}, "": {"archive", "jobs", "cache", "models", "web"},
	} {
		if diff := cmp.Diff(names, want.For(namespace).Names()); diff != "" {
			t.Errorf("%q: -want +got\n%s", namespace, diff)
		}
	}
}

func TestAStoreTakesItsOwnSchemes(t *testing.T) {
	for name, schemes := range map[string][]string{"default": {"s3"}, "jobs": {"redis"}, "web": {"https", "http"}, "models": {"https"}} {
		s, _ := want.Get(name)
		if diff := cmp.Diff(schemes, s.Schemes()); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
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
		{"[old]", "[]", "[1].s3.buckets: is empty; name at least one that functions may read"},
		{"[old]", "['*']", `[1].s3.buckets[0]: "*" is a wildcard; name each one`},
		{
			"[old]", "[old, ../x]",
			`[1].s3.buckets[1]: "../x" may only hold lower-case letters, digits, dots and hyphens; write it like videos`,
		},
		{
			"[old]", "[192.168.0.1]",
			`[1].s3.buckets[0]: "192.168.0.1" must not look like an IP address; write it like videos`,
		},
		{"[old]", "[a..b]", `[1].s3.buckets[0]: "a..b" must not hold two dots in a row; write it like videos`},
		{
			"[old]", "[xn--videos]",
			`[1].s3.buckets[0]: "xn--videos" must not begin with xn--, which is reserved; write it like videos`,
		},
		{"[video, default]", "[video, '*']", `[0].namespaces[1]: "*" is not a DNS label; name a namespace: ` + label},
		{"models.v2: always", "old: always", `[0].fresh["old"]: "always" is of no bucket of the store; name one of the store's buckets, keyspaces or hosts`},
		{"models.v2: always", "models.v2: never", `[0].fresh["models.v2"]: "never" is neither a duration nor ask or always; write it like 30s or 12h`},
		{"models.v2: always", "models.v2: 0s", `[0].fresh["models.v2"]: "0s" is neither a duration nor ask or always; write it like 30s or 12h`},
		{"    buckets: [videos, models.v2]\n", "    buckets: [videos, models.v2]\n    write: {models: back}\n",
			`[0].s3.write["models"]: "models" is of no bucket of the store; name one of the store's buckets`},
		{"    buckets: [videos, models.v2]\n", "    buckets: [videos, models.v2]\n    write: {videos: behind}\n",
			`[0].s3.write["videos"]: "behind" is not how functions write; use through or back, or leave the bucket out if they only read`},
		{"videos: ask}\n  s3:\n", "videos: 30s}\n  s3:\n    write: {videos: back}\n",
			`[0].fresh["videos"]: "30s" is not for a bucket with write: back, of which no node reads anything older; use ask, or always if keys are written once`},
		{"- name: archive\n", "- name: other\n  s3: {endpoint: 'http://10.88.0.2:9000', buckets: [videos], write: {videos: back}, credentialsSecret: x}\n- name: archive\n",
			`[1].s3.write["videos"]: "back" is of a bucket that [0] has too; list a bucket that is written behind in one store`},
		{"cache: 30s", "cache: ask", `[3].fresh["cache"]: "ask" is not for Redis, which has no versions; write a duration like 30s, or leave it out to have each value fetched`},
		{"shared: [models.v2]", "shared: [old]", `[0].shared[0]: "old" is no bucket of the store; name one of the store's buckets, keyspaces or hosts`},
		{"credentialsSecret: archive", "credentialsSecret: ../../etc/passwd", `[1].s3.credentialsSecret: "../../etc/passwd" is not a DNS label; name the secret that holds the credentials: ` + label},
		{"redis.example.com:6379", "redis.example.com", `[2].redis.address: "redis.example.com" has no port; write it like redis.example.com:6379`},
		{"redis.example.com:6379", "''", `[2].redis.address: is missing; write it like redis.example.com:6379`},
		{"redis.example.com:6379", "redis://me:secret@redis:6379", `[2].redis.address: "redis://***@redis:6379" holds a user or password; put the credentials into the secret that credentialsSecret names`},
		{"redis.example.com:6379", "redis://redis:6379", `[2].redis.address: "redis://redis:6379" is not host:port; write it like redis.example.com:6379`},
		{"redis.example.com:6379", "redis:0", `[2].redis.address: "redis:0" is not host:port; write it like redis.example.com:6379`},
		{"db: 3", "db: -1", `[2].redis.db: "-1" is not the number of a database; use 0 or the number that the server knows it by`},
		{"[jobs, Frames_1]", "[]", `[2].redis.keyspaces: is empty; name at least one that functions may read`},
		{"[jobs, Frames_1]", "['jobs*']", `[2].redis.keyspaces[0]: "jobs*" is a wildcard; name each one`},
		{
			"[jobs, Frames_1]", "['jobs:']",
			`[2].redis.keyspaces[0]: "jobs:" may only hold letters, digits, dots, hyphens and underscores; write it like jobs, what stands before the first colon of the keys`,
		},
		{"credentialsSecret: jobs", "credentialsSecret: ../jobs", `[2].redis.credentialsSecret: "../jobs" is not a DNS label; name the secret that holds the credentials: ` + label},
		{"[www.example.com]", "[]", `[5].http.hosts: is empty; name at least one that functions may read`},
		{"[www.example.com]", "['*.example.com']", `[5].http.hosts[0]: "*.example.com" is a wildcard; name each one`},
		{
			"[www.example.com]", "['https://www.example.com']",
			`[5].http.hosts[0]: "https://www.example.com" must have a port of 1 to 65535, or none; write it like models.example.com, or with a port like 10.0.0.7:8080`,
		},
		{
			"[www.example.com]", "[www.example.com/a]",
			`[5].http.hosts[0]: "www.example.com/a" may only hold lower-case letters, digits, dots and hyphens, and a port; write it like models.example.com, or with a port like 10.0.0.7:8080`,
		},
		{
			"[www.example.com]", "['a:70000']",
			`[5].http.hosts[0]: "a:70000" must have a port of 1 to 65535, or none; write it like models.example.com, or with a port like 10.0.0.7:8080`,
		},
		{"http: {hosts: [www.example.com]}", "http: {hosts: [www.example.com]}\n  redis: {address: 'a:1', keyspaces: [a]}", `[5]: has more than one of s3, redis and http; make a store of each, with a name of its own`},
		{"credentialsSecret: archive", "", "[1].s3.credentialsSecret: is missing; name the secret that holds the credentials: " + label + "; or write credentials: workload or anonymous"},
		{"credentialsSecret: archive", "credentials: workload\n    credentialsSecret: archive", `[1].s3.credentials: "workload" stands beside credentialsSecret; remove one of the two`},
		{"credentialsSecret: archive", "credentials: iam", `[1].s3.credentials: "iam" is not where credentials come from; use workload or anonymous, or name a secret by credentialsSecret`},
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

// The schema of the chart's values takes the names that Parse takes.
func TestTheChartsSchemaHasTheGrammar(t *testing.T) {
	const file = "../../../manifests/charts/headstart/values.schema.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, definition := range schema.Defs {
		has[string(definition)] = true
	}
	for _, k := range reference.Kinds() {
		want := fmt.Sprintf(`{"type": "string", "pattern": "^%s$"`, k.Bucket.Pattern())
		if refused := k.Bucket.Refused(); refused != "" {
			want += fmt.Sprintf(`, "not": {"pattern": "^(%s)$"}`, refused)
		}
		if want += "}"; !has[want] {
			t.Errorf("%s has no definition of the buckets of %s: want\n%s", file, k.Form, want)
		}
	}
}

func TestThePageHasTheGrammar(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range reference.Kinds() {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `[a-z]+` \\| %d to %d", k.Bucket.Shortest, k.Bucket.Longest))
		if !row.Match(page) {
			t.Errorf("the page has no row of the buckets of %s, like %s", k.Form, row)
		}
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"name: default", "not a list of stores"},
		{"- name: a\n  ftp: {}", `unknown field "ftp"`},
		{"- name: a\n  s3: {secretKey: hunter2}", `unknown field "secretKey"`},
		{"- name: a\n  name: b", `key "name" already set`},
		{"- name: a", "[0].s3: is missing; say where the store is, by one of s3, redis and http"},
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
			isS3, isHTTP := s.Kind == stores.KindS3, s.Kind == stores.KindHTTP
			if s.Name == "" || len(s.Buckets) == 0 || strings.Contains(s.Endpoint, "@") || isS3 != (s.Region != "") || isHTTP != (s.Endpoint == "") || isS3 && s.Secret == "" {
				t.Errorf("accepted %+v", s)
			}
			if got, ok := ss.Get(s.Name); !ok || !cmp.Equal(got, s) {
				t.Errorf("Get(%q) = %+v, %t", s.Name, got, ok)
			}
		}
	})
}
