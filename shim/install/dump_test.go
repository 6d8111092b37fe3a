//go:build integration || cluster

package install_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/headstart-mesh/headstart/shim/install/edit"
)

// rendered is the configuration that containerd gets on the node below root: what the
// distribution makes of it, with the node's paths turned into this machine's.
func rendered(t *testing.T, fixture, root string) string {
	t.Helper()
	at := func(p string) string { return filepath.Join(root, p) }
	read := func(p string) string {
		text, err := os.ReadFile(at(p))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	main := "/etc/containerd/config.toml"
	switch kind, _, _ := strings.Cut(fixture, "-"); kind {
	case "k3s", "rke2":
		dir := "/var/lib/rancher/" + kind + "/agent/etc/containerd/"
		main = dir + "config.toml"
		for _, name := range []string{"config-v3.toml.tmpl", "config.toml.tmpl"} {
			template, err := os.ReadFile(at(dir + name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			base := read(main)
			if fixture == "k3s-1.33-template" { // whose generated file has the template's own part too
				base, _, _ = strings.Cut(base, `[plugins."io.containerd.grpc.v1.cri".registry]`)
			}
			text := strings.ReplaceAll(string(template), `{{ template "base" . }}`, base)
			write(t, at(main), strings.ReplaceAll(text, "{{ .NodeConfig.Containerd.Registry }}", "/certs.d"))
			break
		}
	case "k0s":
		main = "/etc/k0s/containerd.toml"
		if fixture == "k0s-1.28" { // k0s merges by itself
			var merged map[string]any
			for _, p := range []string{"/run/k0s/containerd-cri.toml", "/etc/k0s/containerd.d/headstart.toml"} {
				c, err := edit.Parse([]byte(read(p)))
				if err != nil {
					t.Fatal(err)
				}
				merged = edit.Merge(merged, c.Tree)
			}
			text, err := toml.Marshal(merged)
			if err != nil {
				t.Fatal(err)
			}
			write(t, at("/run/k0s/containerd-cri.toml"), string(text))
		}
	case "microk8s":
		main = "/etc/containerd/config.toml"
		text := read("/var/snap/microk8s/current/args/containerd-template.toml")
		text = strings.NewReplacer("${RUNTIME}", "runc", "${RUNTIME_TYPE}", "io.containerd.runc.v2", "${SNAPSHOTTER}", "overlayfs", "${SNAP_DATA}", "/snap").Replace(text)
		if err := os.MkdirAll(filepath.Dir(at(main)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, at(main), text)
	}
	if fixture == "containerd-2-link" {
		main = "/usr/lib/containerd/config.toml"
	}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(p) != ".toml" {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		imports := regexp.MustCompile(`(["'])/(etc|run|var)/([^"']*\.toml["'])`)
		return os.WriteFile(p, imports.ReplaceAll(text, []byte("${1}"+root+"/${2}/${3}")), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return at(main)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// testDump has a real containerd read what the installer made of each node that has a
// configuration of at most the given version. plugin is the CRI plugin's name there.
func testDump(t *testing.T, containerd, plugin string, version int) {
	for _, fixture := range fixtures(t) {
		t.Run(fixture, func(t *testing.T) {
			root := plant(t, fixture)
			if err := newRig(t, root, "shim").Install(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := dump(t, containerd, rendered(t, fixture, root), version)
			if after == nil {
				return // a form that this containerd does not read
			}
			table := edit.Table(after, "plugins", plugin, "containerd")
			ours := edit.Table(table, "runtimes", "headstart")
			if ours["runtime_type"] != shimPath {
				t.Errorf("containerd has the runtime as %v", ours)
			}
			name, _ := table["default_runtime_name"].(string)
			if edit.Table(table, "runtimes", name)["runtime_type"] == nil {
				t.Errorf("containerd has lost its default runtime %q: %v", name, table["runtimes"])
			}
			_, err := os.Stat(filepath.Join(root, "opt/headstart/etc/runc.toml"))
			if options := edit.Table(ours, "options"); (options["ConfigPath"] == "/opt/headstart/etc/runc.toml") != (err == nil) {
				t.Errorf("options %v, but of their file: %v", options, err)
			}
		})
	}
}

// dump is the configuration as containerd reads it, nil for one of a newer version.
func dump(t *testing.T, containerd, config string, version int) map[string]any {
	t.Helper()
	main, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	said, err := edit.Parse(main)
	if err != nil {
		t.Fatal(err)
	}
	if said.Version > version {
		return nil
	}
	cmd := exec.CommandContext(t.Context(), containerd, "--config", config, "config", "dump")
	cmd.Stderr = t.Output()
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, main)
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}
