package destinations_test

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

//go:embed testdata/ca.pem
var ca string

var valid = `
- name: orders
  namespaces: [shop, web]
  origin: node
  unused: 5
  postgres:
    address: db.example.com:5432
    user: orders
    credentialsSecret: orders-db
    tls:
      serverName: db.internal
      roots: |
        ` + strings.ReplaceAll(ca, "\n", "\n        ") + `
- name: sessions
  redis: {address: "10.0.0.7:6379", user: app, db: 3, credentialsSecret: sessions, tls: {}}
- name: ledger
  tls: {address: "ledger.example.com:443"}
- name: legacy
  origin: sandbox
  tcp: {address: "legacy:9000"}
- name: reports
  origin: node
  postgres: {address: "db:5432", user: Reports, database: all reports}
`

var want = destinations.Destinations{
	{Name: "orders", Kind: "postgres", Address: "db.example.com:5432", Origin: "node", User: "orders", Database: "orders", Secret: "orders-db",
		TLS: &destinations.TLS{Roots: ca, ServerName: "db.internal"}, Namespaces: []string{"shop", "web"}, Unused: 5},
	{Name: "sessions", Kind: "redis", Address: "10.0.0.7:6379", Origin: "sandbox", User: "app", DB: 3, Secret: "sessions", TLS: &destinations.TLS{}},
	{Name: "ledger", Kind: "tls", Address: "ledger.example.com:443", Origin: "sandbox", TLS: &destinations.TLS{}},
	{Name: "legacy", Kind: "tcp", Address: "legacy:9000", Origin: "sandbox"},
	{Name: "reports", Kind: "postgres", Address: "db:5432", Origin: "node", User: "Reports", Database: "all reports", Unused: 20},
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destinations.yaml")
	if err := os.WriteFile(path, []byte(valid), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := destinations.Load(path, destinations.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := destinations.Load(path+".gone", destinations.Sandbox); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	for _, text := range []string{"", "[]", "# none yet\n"} {
		if got, err := destinations.Parse([]byte(text), destinations.Node); len(got) != 0 || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestTheCallerSaysWhichOriginIsTheStandard(t *testing.T) {
	got, err := destinations.Parse([]byte(valid), destinations.Node)
	if err != nil {
		t.Fatal(err)
	}
	for name, origin := range map[string]destinations.Origin{"orders": "node", "sessions": "node", "legacy": "sandbox"} {
		if d, ok := got.Get(name); !ok || d.Origin != origin || (d.Unused > 0) != (origin == "node") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestFor(t *testing.T) {
	for namespace, names := range map[string][]string{
		"shop": want.Names(), "other": {"sessions", "ledger", "legacy", "reports"}, "": {"sessions", "ledger", "legacy", "reports"},
	} {
		if diff := cmp.Diff(names, want.For(namespace).Names()); diff != "" {
			t.Errorf("%q: -want +got\n%s", namespace, diff)
		}
	}
	if d, ok := want.Get("nowhere"); ok {
		t.Errorf("nowhere is %+v", d)
	}
}

func TestMessages(t *testing.T) {
	got := want.Messages()[:2]
	told := []*nodeapi.Destination{
		{Name: "orders", Kind: "postgres", Address: "db.example.com:5432", Origin: "node", User: "orders", Database: "orders", Secret: "orders-db",
			Tls: &nodeapi.DestinationTLS{Roots: ca, ServerName: "db.internal"}, Namespaces: []string{"shop", "web"}},
		{Name: "sessions", Kind: "redis", Address: "10.0.0.7:6379", Origin: "sandbox", User: "app", Db: 3, Secret: "sessions", Tls: &nodeapi.DestinationTLS{}},
	}
	if diff := cmp.Diff(told, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseRefusesAField(t *testing.T) {
	const (
		label   = "use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit"
		address = "write it like db.example.com:5432"
		certs   = "write certificates, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
	)
	key := "-----BEGIN PRIVATE KEY-----\n        aHVudGVyMg==\n        -----END PRIVATE KEY-----"
	for _, tt := range []struct{ old, replacement, want string }{
		{"name: orders", "name: Orders", `[0].name: "Orders" is not a DNS label; ` + label},
		{"name: orders", "name: ''", "[0].name: is missing; " + label},
		{"name: sessions", "name: orders", `[1].name: "orders" is the name of [0] too; give each destination a name of its own`},
		{"[shop, web]", "[shop, '*']", `[0].namespaces[1]: "*" is not a DNS label; name a namespace: ` + label},
		{"origin: sandbox", "origin: pod", `[3].origin: "pod" is not where connections are made; use sandbox or node`},
		{"unused: 5", "unused: 0", `[0].unused: "0" is out of range; use 1 to 10000`},
		{"unused: 5", "unused: 10001", `[0].unused: "10001" is out of range; use 1 to 10000`},
		{"origin: sandbox", "unused: 5", `[3].unused: "5" is for the origin node: a sandbox's connections are all its own; remove it, or add origin: node`},
		{"db.example.com:5432", "''", "[0].postgres.address: is missing; " + address},
		{"db.example.com:5432", "db.example.com", `[0].postgres.address: "db.example.com" has no port; ` + address},
		{"db.example.com:5432", "postgres://me:hunter2@db:5432", `[0].postgres.address: "postgres://***@db:5432" holds a user or password; name the user by user, and put the password into the secret that credentialsSecret names`},
		{"db.example.com:5432", "db:0", `[0].postgres.address: "db:0" is not host:port; ` + address},
		{"db.example.com:5432", "169.254.169.254:80", `[0].postgres.address: "169.254.169.254:80" is no server's address; ` + address},
		{"db.example.com:5432", "DB:5432", `[0].postgres.address: "DB:5432" is not host:port; ` + address},
		{"    user: orders\n", "", "[0].postgres.user: is missing; name the user that the sessions are logged in as"},
		{"user: orders\n", `user: "a\0b"` + "\n", `[0].postgres.database: "a\x00b" is not a name; use at most 63 bytes without control characters` + "\n" + `[0].postgres.user: "a\x00b" is not a name; use at most 63 bytes without control characters`},
		{"database: all reports", "database: " + strings.Repeat("a", 64), `[4].postgres.database: "` + strings.Repeat("a", 64) + `" is not a name; use at most 63 bytes without control characters`},
		{"user: app", `user: "a\nb"`, `[1].redis.user: "a\nb" is not a name; use at most 63 bytes without control characters`},
		{"db: 3", "db: -1", `[1].redis.db: "-1" is not the number of a database; use 0 or the number that the server knows it by`},
		{"credentialsSecret: sessions", "credentialsSecret: ../../etc/passwd", `[1].redis.credentialsSecret: "../../etc/passwd" is not a DNS label; name the secret that holds the password: ` + label},
		{"serverName: db.internal", "serverName: db.internal:5432", `[0].postgres.tls.serverName: "db.internal:5432" is not a host's name; write it like db.example.com, in lower case and without a port`},
		{`tls: {address: "ledger.example.com:443"}`, `tls: {address: "ledger.example.com:443", serverName: "*.example.com"}`,
			`[2].tls.serverName: "*.example.com" is not a host's name; write it like db.example.com, in lower case and without a port`},
		{"-----BEGIN CERTIFICATE-----", key + "\n        -----BEGIN CERTIFICATE-----",
			"[0].postgres.tls.roots: holds a private key; remove the key, and replace it wherever it is used: nodes and their operators could read it here"},
		{"-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "[0].postgres.tls.roots: holds something that is not a certificate; " + certs},
		{"-----BEGIN CERTIFICATE-----\n        M", "-----BEGIN CERTIFICATE-----\n        A", "[0].postgres.tls.roots: holds a certificate that cannot be read; " + certs},
		{"tls: {address", "tcp: {address: 'a:1'}\n  tls: {address", "[2]: has more than one of tcp, tls, postgres and redis; make a destination of each, with a name of its own"},
	} {
		t.Run(tt.replacement, func(t *testing.T) {
			if !strings.Contains(valid, tt.old) {
				t.Fatalf("the list has no %q", tt.old)
			}
			got, err := destinations.Parse([]byte(strings.Replace(valid, tt.old, tt.replacement, 1)), destinations.Sandbox)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "aHVudGVyMg") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"name: orders", "not a list of destinations"},
		{"- name: a\n  mysql: {}", `unknown field "mysql"`},
		{"- name: a\n  postgres: {password: hunter2}", `unknown field "password"`},
		{"- name: a\n  name: b", `key "name" already set`},
		{"- name: a", "[0].tcp: is missing; say what the destination is, by one of tcp, tls, postgres and redis"},
		{"- {", "not a list of destinations"},
		{strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes; list fewer destinations"},
	} {
		_, err := destinations.Parse([]byte(tt.text), destinations.Sandbox)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.40q: got %v, want %s", tt.text, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("- name: a\n  tcp: {address: 'a:1'}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ds, err := destinations.Parse(data, destinations.Sandbox)
		if err != nil {
			return
		}
		for _, d := range ds {
			secure := d.TLS == nil || !strings.Contains(d.TLS.Roots, "PRIVATE KEY")
			if d.Name == "" || d.Kind == "" || !strings.Contains(d.Address, ":") || strings.Contains(d.Address, "@") || !secure ||
				(d.Origin == destinations.Node) != (d.Unused > 0) || d.Kind == destinations.KindPostgres && (d.User == "" || d.Database == "") {
				t.Errorf("accepted %+v", d)
			}
			if got, ok := ds.Get(d.Name); !ok || !cmp.Equal(got, d) {
				t.Errorf("Get(%q) = %+v, %t", d.Name, got, ok)
			}
		}
	})
}

// The daemon holds back what programs say to Redis, and nothing else.
func TestUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		of     *nodeapi.Connections
		unseen bool
	}{
		"none":         {nil, true},
		"Redis":        {&nodeapi.Connections{Destinations: []string{"a"}, Kinds: map[string]string{"a": "redis"}, By: "socket"}, true},
		"a descriptor": {&nodeapi.Connections{Destinations: []string{"a"}, Kinds: map[string]string{"a": "redis"}, By: "descriptor"}, true},
		"connect":      {&nodeapi.Connections{Destinations: []string{"a"}, Kinds: map[string]string{"a": "redis"}, By: "connect"}, false},
		"another kind": {&nodeapi.Connections{Destinations: []string{"a", "b"}, Kinds: map[string]string{"a": "redis", "b": "postgres"}}, false},
		"no kind":      {&nodeapi.Connections{Destinations: []string{"a"}}, false},
	} {
		if destinations.Unseen(c.of) != c.unseen {
			t.Errorf("%s: unseen %v", name, !c.unseen)
		}
	}
}
