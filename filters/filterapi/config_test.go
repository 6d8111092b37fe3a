package filterapi

import (
	"encoding/json"
	"fmt"
	"strconv"
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
	}
}

func fire() *Function {
	return &Function{Name: "shop/fire", Input: "s3://{header.x-bucket}/{header.x-key}",
		Inputs: map[string]string{"mask": "s3://masks/{header.x-key}"}}
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

func TestAFunctionSurvivesItsJSON(t *testing.T) {
	for _, want := range []*Function{fire(), {Name: "shop/plain"}, {Name: "shop/watched", Observed: fire().Templates()}} {
		data, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFunction(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("function (-want +got):\n%s", diff)
		}
	}
}

// A function's owner chooses templates; the largest that the annotations allow reach the filter.
func TestTheLargestFunctionIsRead(t *testing.T) {
	f := &Function{Name: "shop/large", Inputs: map[string]string{}}
	template := func(bucket string) string {
		s := "s3://" + bucket + "/"
		return s + strings.Repeat("&", min(reference.MaxKeyBytes, reference.MaxTemplateBytes-len(s)))
	}
	f.Input = template("large")
	for i := range reference.MaxNamed {
		f.Inputs[strings.Repeat("n", reference.MaxNameBytes-1)+strconv.Itoa(i)] = template("large")
	}
	data, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseFunction(data); err != nil {
		t.Errorf("of %d bytes: %v", len(data), err)
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
		{"relative endpoint", func(c *Config) { c.IngressEndpoint = "run/ingress.sock" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"two endpoints", func(c *Config) { c.IngressEndpoint = "/run/a,/run/b" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"endpoint of two lines", func(c *Config) { c.IngressEndpoint = "/run/a\nb" }, "ingressEndpoint: must be the absolute path of a unix socket"},
		{"long endpoint", func(c *Config) { c.IngressEndpoint = "/" + strings.Repeat("a", 107) }, "of at most 107 letters"},
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
		{"wrong type", `{"version":"v1","hintCluster":1}`, "hintCluster: must be a string"},
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

// What Validate refuses of a function, neither end of the way accepts.
func TestAWrongFunctionIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Function)
		want  string
	}{
		{"no namespace", func(f *Function) { f.Name = "plain" }, `name: "plain" is not namespace/name`},
		{"upper-case name", func(f *Function) { f.Name = "shop/Plain" }, `name: "shop/Plain" is not namespace/name`},
		{"name of three", func(f *Function) { f.Name = "a/b/c" }, `name: "a/b/c" is not namespace/name`},
		{"named template", func(f *Function) { f.Inputs["mask"] = "s3://masks" }, "input.mask: has no key"},
		{"name", func(f *Function) { f.Inputs["../mask"] = "s3://masks/a" }, "inputs: \"../mask\" is not the name of an input"},
		{"observed template", func(f *Function) { f.Input, f.Inputs, f.Observed = "", nil, map[string]string{"": "s3://videos"} }, "input: has no key"},
		{"both templates", func(f *Function) { f.Observed = map[string]string{"": "s3://videos/a"} }, "observed: a function has either"},
		{"template", func(f *Function) { f.Input = "s3://videos/{header.X-Key}" },
			"input: key: {header.X-Key}: write header names in lower case: {header.x-key}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fire()
			c.spoil(f)
			if _, err := f.Marshal(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Marshal: error %v, want one that says %q", err, c.want)
			}
			data, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ParseFunction(data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ParseFunction: error %v, want one that says %q", err, c.want)
			}
		})
	}
	for data, want := range map[string]string{
		"": "is not one value of JSON", `{"name":1}`: "name: must be a string", `{"name":"a/b","inputs":[]}`: "inputs: must be an object",
		strings.Repeat(" ", MaxFunctionBytes+1): "at most 131072 are allowed",
	} {
		if _, err := ParseFunction([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: error %v, want one that says %q", data, err, want)
		}
	}
}

// A control plane of the next version may say more, and one of the version before names functions, with their hosts.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	c, err := ParseConfig([]byte(`{"version":"v1","hintCluster":"c","added":1,"functions":[{"name":"a/b","hosts":["b"]}]}`))
	if err != nil || c.HintCluster != "c" {
		t.Errorf("configuration %+v, %v", c, err)
	}
	f, err := ParseFunction([]byte(`{"name":"a/b","added":{"x":[]}}`))
	if err != nil || f.Name != "a/b" {
		t.Errorf("function %+v, %v", f, err)
	}
}

// What is accepted can be written again and means the same.
func FuzzParseConfig(f *testing.F) {
	data, err := valid().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":"v1","hintCluster":"c","functions":[{"name":"a/b","hosts":["b"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) { again(t, data, ParseConfig, (*Config).Marshal) })
}

func FuzzParseFunction(f *testing.F) {
	data, err := fire().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) { again(t, data, ParseFunction, (*Function).Marshal) })
}

func again[T any](t *testing.T, data []byte, parse func([]byte) (*T, error), marshal func(*T) ([]byte, error)) {
	c, err := parse(data)
	if err != nil {
		return
	}
	again, err := marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Fatalf("written again it differs (-want +got):\n%s", diff)
	}
}
