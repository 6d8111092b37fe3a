package knative_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// Whatever text comes in, Parse returns; and what it accepts can be run.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"full.yaml", "small.yaml"} {
		f.Add([]byte(read(f, name)))
	}
	f.Add([]byte("a: 1\n...\n---\n- \"\\xff\"\n"))
	f.Add([]byte("%YAML 1.2\n---\n? [a]\n: {<<: b}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		functions, err := knative.Parse(bytes.NewReader(data), allowed, nil)
		if err != nil {
			if functions != nil {
				t.Errorf("functions with the error %v", err)
			}
			if strings.ContainsAny(err.Error(), "\r\x1b\x00") {
				t.Errorf("control characters in %q", err)
			}
			return
		}
		names := map[string]bool{}
		for _, fn := range functions {
			if names[fn.Name] {
				t.Errorf("%s is there twice", fn.Name)
			}
			names[fn.Name] = true
			checkFunction(t, fn)
		}
	})
}

func checkFunction(t *testing.T, fn platform.Function) {
	t.Helper()
	namespace, name, _ := strings.Cut(fn.Name, "/")
	if !field.IsLabel(namespace) || !field.IsLabel(name) || len(fn.Hosts) != 2 {
		t.Errorf("name %q, hosts %q", fn.Name, fn.Hosts)
	}
	if fn.Image == "" || fn.Port < 1 || fn.RequestTimeout <= 0 || fn.CPULimitMillis < 0 || fn.MemoryLimit < 0 {
		t.Errorf("not runnable: %+v", fn)
	}
	if fn.ProbePath != "" && fn.ProbePath[0] != '/' || fn.Node != "" && !field.IsLabel(fn.Node) {
		t.Errorf("probe %q, node %q", fn.ProbePath, fn.Node)
	}
	if fn.Policy.InputLimit < 1 || fn.Policy.InputLimit > policy.MaxInputLimit || fn.Policy.ReadyTimeout <= 0 {
		t.Errorf("policy %+v", fn.Policy)
	}
	for _, name := range []string{"PORT", "K_SERVICE", "K_REVISION", "K_CONFIGURATION"} {
		if fn.Env[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}
	texts := slices.Concat([]string{fn.Image}, fn.Command, fn.Args, slices.Collect(maps.Keys(fn.Env)), slices.Collect(maps.Values(fn.Env)))
	for _, s := range texts {
		if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
			t.Errorf("%q cannot reach a program", s)
		}
	}
}
