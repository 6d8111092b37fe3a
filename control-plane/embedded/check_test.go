package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	const room = maxSocketPath - len("/node-1/"+longestSocket)
	for name, tt := range map[string]struct {
		change func(*Options)
		want   string // "" if all is well
	}{
		"as they are":          {func(*Options) {}, ""},
		"digit last":           {func(o *Options) { o.Name = "hs1" }, ""},
		"dash in the name":     {func(o *Options) { o.Name = "hs-1" }, `--name: network name "hs-1": up to 11 lower case letters and digits, a letter first`},
		"no node":              {func(o *Options) { o.Nodes = nil }, "--nodes: at least one node is needed"},
		"capital":              {func(o *Options) { o.Nodes = []string{"edge", "Cloud"} }, `--node-names: "Cloud" is not a DNS label`},
		"path for a node":      {func(o *Options) { o.Nodes = []string{"../x"} }, `--node-names: "../x" is not a DNS label`},
		"longest node":         {func(o *Options) { o.RunDir, o.Nodes = "/r", []string{strings.Repeat("n", 63)} }, ""},
		"node too long":        {func(o *Options) { o.RunDir, o.Nodes = "/r", []string{strings.Repeat("n", 64)} }, "--node-names"},
		"no port":              {func(o *Options) { o.GatewayPort = 0 }, "--gateway-port 0: use a port from 1 to 65535"},
		"last port":            {func(o *Options) { o.GatewayPort = 65535 }, ""},
		"wrapped port":         {func(o *Options) { o.GatewayPort = 65536 + 80 }, "--gateway-port 65616: use a port from 1 to 65535"},
		"longest run-dir":      {func(o *Options) { o.RunDir = "/" + strings.Repeat("d", room-1) }, ""},
		"run-dir too long":     {func(o *Options) { o.RunDir = "/" + strings.Repeat("d", room) }, "is too long by 1 bytes: the path of a unix socket has at most 107"},
		"state in run-dir":     {func(o *Options) { o.StateDir = "/run/headstart/state" }, "must not hold --state-dir /run/headstart/state"},
		"state is run-dir":     {func(o *Options) { o.StateDir = "/run/headstart" }, "--run-dir /run/headstart is removed"},
		"state beside run-dir": {func(o *Options) { o.StateDir = "/run/headstart-state" }, ""},
	} {
		o := Options{Name: "headstart", Nodes: []string{"node-1"}, GatewayPort: 8080, RunDir: "/run/headstart", StateDir: "/var/lib/headstart"}
		tt.change(&o)
		err := o.checkValues()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A directory of secrets that cannot be read is said at the start, with who needs it.
func TestSecretsDirectory(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "stores.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := "- {name: edge, s3: {endpoint: https://s3.example.com, region: eu-central-1, buckets: [videos], credentialsSecret: edge}}\n- {name: open, http: {hosts: [files.example.com]}}\n"
	for name, in := range map[string]struct {
		stores string
		change func(*Options)
		want   string // "" if all is well
	}{
		"there":           {with, func(o *Options) { o.SecretsDir = dir }, ""},
		"not there":       {with, func(*Options) {}, `the secrets of store "edge": open ` + dir + "/none: no such file"},
		"a file":          {with, func(o *Options) { o.SecretsDir = list }, "not a directory"},
		"not needed":      {"- {name: open, http: {hosts: [files.example.com]}}\n", func(*Options) {}, ""},
		"no stores":       {"", func(o *Options) { o.Stores = "" }, ""},
		"for Redis":       {"", func(o *Options) { o.Stores, o.Buffer.RedisSecret = "", "buffer" }, "the secrets of --buffer-redis"},
		"stores nonsense": {"- {name: edge}", func(*Options) {}, "--stores: "},
		"for a destination": {"- {name: orders, postgres: {address: 'db:5432', user: orders, credentialsSecret: orders}}\n",
			func(o *Options) { o.Stores, o.Destinations = "", list }, `the secrets of destination "orders"`},
		"destinations nonsense": {"- {name: orders}", func(o *Options) { o.Stores, o.Destinations = "", list }, "--destinations: "},
		"stores not there":      {"", func(o *Options) { o.Stores = dir + "/other.yaml" }, "--stores: "},
	} {
		write(in.stores)
		o := Options{Stores: list, SecretsDir: filepath.Join(dir, "none")}
		in.change(&o)
		err := o.checkSecrets()
		if in.want == "" && err != nil || in.want != "" && (err == nil || !strings.Contains(err.Error(), in.want)) {
			t.Errorf("%s: %v, want %q", name, err, in.want)
		}
	}
}

func TestLoopbackOnly(t *testing.T) {
	for conf, want := range map[string]bool{
		"":                                false,
		"search example.com\nnameserver":  false,
		"nameserver 127.0.0.53\n":         true,
		"nameserver\t127.0.0.53 # stub\n": true,
		"nameserver ::1\nnameserver 127.0.0.1\noptions edns0": true,
		"nameserver ::ffff:127.0.0.1":                         true,
		"nameserver 127.0.0.53\nnameserver 192.0.2.1":         false,
		"# nameserver 192.0.2.1\nnameserver 127.0.0.53":       true,
		"nameserver fe80::1%eth0":                             false,
		"nameserver nonsense":                                 false,
	} {
		if got := loopbackOnly(conf); got != want {
			t.Errorf("%q: %t, want %t", conf, got, want)
		}
	}
}
