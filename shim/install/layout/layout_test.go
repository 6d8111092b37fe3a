package layout_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/install/edit"
	"github.com/headstart-mesh/headstart/shim/install/layout"
)

// files is a node of which only the files count.
type files map[string]string

func (f files) Read(p string) ([]byte, error) {
	text, ok := f[p]
	if !ok {
		return nil, fmt.Errorf("reading %s: %w", p, fs.ErrNotExist)
	}
	return []byte(text), nil
}

func (f files) List(dir string) ([]string, error) {
	var names []string
	for p := range f {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f files) Exists(p string) bool {
	_, ok := f[p]
	return ok
}

const (
	plain  = "/etc/containerd/config.toml"
	socket = "/run/containerd/containerd.sock"
	k3s    = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	rke2   = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
	k3sSoc = "/run/k3s/containerd/containerd.sock"
)

func TestDetect(t *testing.T) {
	for name, tt := range map[string]struct {
		node files
		want layout.Kind
		err  string
	}{
		"nothing":                           {node: files{}, err: "--layout"},
		"a socket":                          {node: files{socket: ""}, want: layout.Containerd},
		"a configuration":                   {node: files{plain: ""}, want: layout.Containerd},
		"a program":                         {node: files{"/usr/local/bin/containerd": ""}, want: layout.Containerd},
		"k3s beside Docker's":               {node: files{k3s: "", k3sSoc: "", plain: "", socket: ""}, want: layout.K3s},
		"k3s that does not run, alone":      {node: files{k3s: "", plain: ""}, want: layout.K3s},
		"k3s left over beside a live one":   {node: files{k3s: "", plain: "", socket: ""}, want: layout.Containerd},
		"k3s and rke2":                      {node: files{k3s: "", rke2: "", k3sSoc: ""}, err: "k3s or rke2"},
		"k0s without a configuration":       {node: files{"/var/lib/k0s/bin/containerd": "", "/run/k0s/containerd.sock": ""}, want: layout.K0s},
		"a socket of k3s, but not its sign": {node: files{k3sSoc: "", plain: ""}, want: layout.Containerd},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := layout.Detect(tt.node)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q, %v; want %q, error with %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// Operating systems that write containerd's configuration themselves, and others.
func TestNodesThatCannotHaveTheRuntime(t *testing.T) {
	for name, tt := range map[string]struct {
		node files
		why  string
	}{
		"Container-Optimized OS":  {files{"/etc/os-release": "NAME=\"Container-Optimized OS\"\nID=cos\nVERSION=121\n", plain: "", socket: ""}, "/opt read-only"},
		"Bottlerocket":            {files{"/etc/os-release": "NAME=Bottlerocket\nID=bottlerocket\nVARIANT_ID=aws-k8s-1.33\n", plain: "", socket: ""}, "Bottlerocket"},
		"Talos":                   {files{"/etc/os-release": "NAME=\"Talos\"\nID=talos\nVERSION_ID=v1.11.0\n", plain: "", socket: ""}, "Talos"},
		"OpenShift":               {files{"/usr/lib/os-release": "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhel\"\nVARIANT_ID=coreos\n", "/run/crio/crio.sock": ""}, "CRI-O"},
		"CRI-O beside containerd": {files{"/run/crio/crio.sock": "", socket: ""}, ""},
		"Ubuntu":                  {files{"/etc/os-release": "ID=ubuntu\nID_LIKE=debian\n", plain: "", socket: ""}, ""},
		"nothing said":            {files{plain: "", socket: ""}, ""},
	} {
		err := layout.Suits(tt.node)
		if unsuited, is := errors.AsType[*layout.Unsuited](err); is != (tt.why != "") || err != nil && (!is || !strings.Contains(unsuited.Error(), tt.why)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where a change would be a risk, there is none, and the error says where and what to do.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		node files
		want []string
	}{
		"no TOML":         {files{plain: "version = 2\n[plugins\n"}, []string{plain + ":2:", "fix it"}},
		"CRI is disabled": {files{plain: "version = 2\ndisabled_plugins = [\"cri\"]\n"}, []string{plain + ":2:", "disabled_plugins"}},
		"another runtime of the name": {files{plain: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.headstart]\nruntime_type = \"x\"\n"},
			[]string{plain + ":2:", "rename or remove"}},
		"another one in a drop-in": {files{plain: "version = 3\nimports = ['conf.d/*.toml']\n",
			"/etc/containerd/conf.d/a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.headstart]\nruntime_type = 'x'\n"},
			[]string{"/etc/containerd/conf.d/a.toml:2:"}},
		"an inline table": {files{plain: "version = 2\nplugins = {\"io.containerd.grpc.v1.cri\" = {containerd = {}}}\n"},
			[]string{plain + ":2:", "headers"}},
		"too many imports": {files{plain: "version = 3\nimports = [" + strings.Repeat("'x',", 1) + "'/many/*']\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == nil {
				for i := range 300 {
					tt.node[fmt.Sprintf("/many/%d.toml", i)] = "version = 3\n"
				}
				tt.want = []string{plain, "imports over"}
			}
			_, err := layout.Make(tt.node, layout.Containerd, "")
			if _, ok := errors.AsType[*layout.Refusal](err); !ok {
				t.Fatalf("error %v, want a refusal", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

// `containerd config migrate` copies our runtime to where nobody marked it.
func TestARuntimeThatIsOursAlreadyIsLeft(t *testing.T) {
	plan, err := layout.Make(files{plain: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.headstart]\nruntime_type = '" + layout.Shim + "'\n"}, layout.Containerd, "")
	if err != nil || len(plan.Config) != 0 || len(plan.Notes) != 1 {
		t.Errorf("plan %+v, %v; want none but a note", plan, err)
	}
}

func TestUnknownLayout(t *testing.T) {
	if _, err := layout.Make(files{}, "podman", ""); err == nil || !strings.Contains(err.Error(), "microk8s") {
		t.Errorf("error %v, want one that names the layouts", err)
	}
}

func TestABrokenTemplateIsRefused(t *testing.T) {
	tmpl := path.Dir(k3s) + "/config.toml.tmpl"
	for text, want := range map[string]string{
		"{{ if }":                    "not a template",
		"version = 2\n{{ if .X }}\n": "not a template",
		"{{ template \"base\" . }}\n[plugins.cri.containerd.runtimes.headstart]\n": tmpl + ":2:",
	} {
		_, err := layout.Make(files{k3s: "version = 2\n", tmpl: text}, layout.K3s, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// Whatever a configuration says: it is refused, or containerd gets what it said and our
// runtime, and taking that out gives the file back.
func FuzzPlans(f *testing.F) {
	nodes, err := filepath.Glob("../testdata/*.node")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range nodes {
		text, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n-- ") {
			if head, body, _ := strings.Cut(part, "\n"); strings.Contains(head, ".toml") {
				f.Add(body + "\n")
			}
		}
	}
	f.Add("version = 3\nimports = [ ]")
	f.Add("version = 2\n[plugins]\n'io.containerd.grpc.v1.cri'.containerd.runtimes.runc = {runtime_type = 'x'}\n")
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := layout.Make(files{plain: text}, layout.Containerd, "")
		if err != nil || strings.Contains(text, "# headstart:") {
			return
		}
		before, err := edit.Parse([]byte(text))
		if err != nil {
			t.Fatalf("a plan for what is no TOML: %v", err)
		}
		found := len(plan.Notes) > 0
		for _, file := range plan.Config {
			after, err := edit.Parse(file.Data)
			if err != nil {
				t.Fatalf("%s is no TOML any more: %v\n%s", file.Path, err, file.Data)
			}
			for _, plugin := range []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
				r := edit.Table(after.Tree, "plugins", plugin, "containerd", "runtimes", layout.Handler)
				found = found || r["runtime_type"] == layout.Shim
			}
			if file.Path != plain {
				continue
			}
			if rest, _, err := edit.Strip(file.Data); string(rest) != text || err != nil {
				t.Fatalf("%q became %q, %v", text, rest, err)
			}
			merged := edit.Merge(before.Tree, after.Tree)
			if !reflect.DeepEqual(merged, after.Tree) {
				t.Fatalf("something of %q is lost in %q", text, file.Data)
			}
		}
		if !found {
			t.Fatalf("%q has no runtime in its plan %+v", text, plan)
		}
	})
}
