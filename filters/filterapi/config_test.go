package filterapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

func valid() *Config {
	return &Config{
		Version:         Version,
		HintCluster:     "headstart-hint",
		IngressEndpoint: "/run/headstart/gateway/ingress.sock",
		Functions: []Function{
			{
				Name: "shop/fire", Hosts: []string{"fire.shop.example", "127.0.0.1"},
				Input:  "s3://{header.x-bucket}/{header.x-key}",
				Inputs: map[string]string{"mask": "s3://masks/{header.x-key}"},
			},
			{Name: "shop/plain", Hosts: []string{"plain"}},
		},
	}
}

func TestConfigSurvivesItsJSON(t *testing.T) {
	data, err := valid().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(valid(), got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// What Validate refuses, neither end of the way accepts.
func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Config)
		want  string
	}{
		{"no version", func(c *Config) { c.Version = "" }, `version: is "", this filter takes "v1"`},
		{"other version", func(c *Config) { c.Version = "v2" }, `version: is "v2", this filter takes "v1"`},
		{"no cluster", func(c *Config) { c.HintCluster = "" }, "hintCluster: must be 1 to 255 bytes long"},
		{"long cluster", func(c *Config) { c.HintCluster = strings.Repeat("a", 256) }, "hintCluster: must be 1 to 255 bytes long"},
		{"no namespace", func(c *Config) { c.Functions[1].Name = "plain" }, `functions[1].name: "plain" is not namespace/name`},
		{"upper-case name", func(c *Config) { c.Functions[1].Name = "shop/Plain" }, `functions[1].name: "shop/Plain" is not namespace/name`},
		{"name of three", func(c *Config) { c.Functions[1].Name = "a/b/c" }, `functions[1].name: "a/b/c" is not namespace/name`},
		{"same name", func(c *Config) { c.Functions[1].Name = "shop/fire" }, "functions[1].name: shop/fire is there twice"},
		{"no host", func(c *Config) { c.Functions[0].Hosts = nil }, "functions[0].hosts: must be 1 to 64"},
		{"many hosts", func(c *Config) { c.Functions[0].Hosts = make([]string, 65) }, "functions[0].hosts: must be 1 to 64"},
		{"upper-case host", func(c *Config) { c.Functions[0].Hosts[1] = "Fire" }, `functions[0].hosts[1]: "Fire" is not a host name in lower case without a port`},
		{"host with port", func(c *Config) { c.Functions[0].Hosts[0] = "fire:80" }, `functions[0].hosts[0]: "fire:80" is not a host name in lower case without a port`},
		{"wildcard", func(c *Config) { c.Functions[0].Hosts[0] = "*.fire" }, `functions[0].hosts[0]: "*.fire" is not a host name in lower case without a port`},
		{"long host", func(c *Config) { c.Functions[0].Hosts[0] = strings.Repeat("a.", 127) + "a" }, "is not a host name"},
		{"long label", func(c *Config) { c.Functions[0].Hosts[0] = strings.Repeat("a", 64) }, "is not a host name"},
		{"hyphen at the end", func(c *Config) { c.Functions[0].Hosts[0] = "a-.b" }, "is not a host name"},
		{"same host", func(c *Config) { c.Functions[1].Hosts = []string{"127.0.0.1"} }, "functions[1].hosts[0]: 127.0.0.1 is already a host of shop/fire"},
		{
			"named template", func(c *Config) { c.Functions[0].Inputs["mask"] = "s3://masks" },
			"functions[0].input.mask: has no key",
		},
		{
			"name", func(c *Config) { c.Functions[0].Inputs["../mask"] = "s3://masks/a" },
			"functions[0].inputs: \"../mask\" is not the name of an input",
		},
		{"template", func(c *Config) { c.Functions[0].Input = "s3://videos/{header.X-Key}" }, "functions[0].input: key: {header.X-Key}: write header names in lower case: {header.x-key}"},
		{"relative endpoint", func(c *Config) { c.IngressEndpoint = "run/ingress.sock" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"two endpoints", func(c *Config) { c.IngressEndpoint = "/run/a,/run/b" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"endpoint of two lines", func(c *Config) { c.IngressEndpoint = "/run/a\nb" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"long endpoint", func(c *Config) { c.IngressEndpoint = "/" + strings.Repeat("a", 107) }, "of at most 107 letters"},
		{"many functions", func(c *Config) { c.Functions = make([]Function, 10_001) }, "functions: has 10001, at most 10000 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := valid()
			c.spoil(config)
			if _, err := config.Marshal(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Marshal: error %v, want one that says %q", err, c.want)
			}
			data, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ParseConfig(data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ParseConfig: error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"empty", ``, "is not one value of JSON"},
		{"null", `null`, "version"},
		{"misspelt field", `{"version":"v1","hints":"c"}`, "hintCluster: must be"},
		{"newer, with a new field", `{"version":"v2","hints":"c"}`, `version: is "v2"`},
		{"wrong type", `{"version":"v1","functions":"all"}`, "functions: must be a list"},
		{"a number for a name", `{"version":"v1","hintCluster":"c","functions":[{"name":1}]}`, "name: must be a string"},
		{"no object", `["v1"]`, "version"},
		{"two values", `{"version":"v1","hintCluster":"c"}{}`, "is not one value of JSON"},
		{"long", strings.Repeat(" ", MaxConfigBytes+1), fmt.Sprintf("at most %d are allowed", MaxConfigBytes)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseConfig([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

// A control plane of the next version may say more.
func TestParseConfigIgnoresWhatIsNew(t *testing.T) {
	c, err := ParseConfig([]byte(`{"version":"v1","hintCluster":"c","added":1,"functions":[{"name":"a/b","hosts":["b"],"added":{"x":[]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.HintCluster != "c" || len(c.Functions) != 1 || c.Functions[0].Name != "a/b" {
		t.Errorf("configuration %+v", c)
	}
}

func TestMarshalRefusesWhatIsTooLong(t *testing.T) {
	c := valid()
	c.Functions = nil
	template := "s3://videos/" + strings.Repeat("a", reference.MaxKeyBytes)
	for i := range 5000 {
		c.Functions = append(c.Functions, Function{Name: fmt.Sprintf("shop/f%d", i), Hosts: []string{fmt.Sprintf("f%d", i)}, Input: template})
	}
	if _, err := c.Marshal(); err == nil || !strings.Contains(err.Error(), "at most 4194304 are allowed") {
		t.Errorf("error %v", err)
	}
}

// A configuration that is accepted can be written again and means the same.
func FuzzParseConfig(f *testing.F) {
	data, err := valid().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":"v1","hintCluster":"c","functions":[{"name":"a/b","hosts":["b"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		again, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseConfig(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Fatalf("written again it differs (-want +got):\n%s", diff)
		}
	})
}
