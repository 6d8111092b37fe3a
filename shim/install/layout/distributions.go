package layout

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"text/template/parse"

	"github.com/headstart-mesh/headstart/shim/install/edit"
)

const (
	// rancherBase has k3s and rke2 put their own configuration there (since k3s 1.28.1 and
	// its contemporaries).
	rancherBase = "{{ template \"base\" . }}\n\n"
	k0sDropIns  = "/etc/k0s/containerd.d"
	// k0sManaged is the first line of a configuration that k0s writes.
	k0sManaged    = "# k0s_managed=true"
	microTemplate = "/var/snap/microk8s/current/args/containerd-template.toml"
)

// Bare tells whether text, Headstart's part taken out, is only what Headstart has put
// around it.
func Bare(text []byte) bool {
	rest := strings.TrimSpace(string(text))
	return rest == "" || rest == strings.TrimSpace(rancherBase)
}

// planRancher is for k3s and rke2, which write generated at each start: from their own
// template, or from the user's, whose name says which version it is of. The newest have
// it import a directory.
func planRancher(v View, generated string) (*Plan, error) {
	c, err := load(v, generated)
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	if plan.RuncOptions, plan.SystemdCgroup, err = c.runcOptions(); err != nil {
		return nil, err
	}
	main := c.files[0]
	if dir := importedDir(main); dir != "" && main.Version >= 3 {
		if _, err := foreign(c.files); err != nil {
			return nil, err
		}
		file, err := c.dropIn(path.Join(dir, dropInName), "version = 3\n", 3)
		plan.Config = []File{file}
		return plan, err
	}
	file, err := c.template(v, path.Dir(generated))
	plan.Config = []File{file}
	return plan, err
}

// template is the user's template in dir with our runtime at its end, or a new one. k3s
// takes that of version 3 first, so a new one of it would displace one of version 2.
func (c *config) template(v View, dir string) (File, error) {
	main := c.files[0]
	// What is rendered from it has our runtime too, so it does not count as foreign; that
	// both can be in one file does.
	if _, err := c.extend(main, main.Version); err != nil {
		return File{}, err
	}
	names := map[int]string{3: "config-v3.toml.tmpl", 2: "config.toml.tmpl"}
	for _, version := range []int{3, 2} {
		p := path.Join(dir, names[version])
		text, err := optional(v, p)
		if err != nil || text == nil {
			if err != nil {
				return File{}, err
			}
			continue
		}
		return c.extendTemplate(p, text, version)
	}
	version := 2
	if main.Version >= 3 {
		version = 3
	}
	return c.extendTemplate(path.Join(dir, names[version]), []byte(rancherBase), version)
}

// extendTemplate appends to a Go template.
func (c *config) extendTemplate(p string, text []byte, version int) (File, error) {
	body, err := c.body(version)
	if err != nil {
		return File{}, err
	}
	at := fmt.Sprintf("containerd.runtimes.%s]", Handler)
	if i := bytes.Index(text, []byte(at)); i >= 0 {
		return File{}, &Refusal{p, 1 + bytes.Count(text[:i], []byte("\n")), fmt.Sprintf("a runtime %q is there already, and is not Headstart's", Handler), "rename or remove it"}
	}
	after := edit.Append(text, body)
	for _, t := range [][]byte{text, after} {
		tree := parser(p)
		if _, err := tree.Parse(string(t), "", "", map[string]*parse.Tree{}); err != nil {
			return File{}, &Refusal{p, 0, "it is not a template: " + err.Error(), "fix it"}
		}
	}
	return File{p, after}, nil
}

// parser is one that knows none of the distribution's functions and lets them be.
func parser(name string) *parse.Tree {
	t := parse.New(name)
	t.Mode = parse.SkipFuncCheck
	return t
}

// planK0s is for k0s: it merges drop-ins, and restarts containerd when they change. Before
// containerd 2 it did so by itself, and wanted no version in them.
func planK0s(v View, main string) (*Plan, error) {
	text, err := optional(v, main)
	if err != nil {
		return nil, err
	}
	if text != nil && !strings.HasPrefix(string(text), k0sManaged+"\n") {
		plan, err := planPlain(v, main)
		if err == nil {
			plan.Notes = append(plan.Notes, main+" is not k0s's but its owner's")
			for _, f := range plan.Config {
				plan.Watched = plan.Watched || path.Dir(f.Path) == k0sDropIns
			}
		}
		return plan, err
	}
	c, err := load(v, main)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Watched: true}
	if plan.RuncOptions, plan.SystemdCgroup, err = c.runcOptions(); err != nil {
		return nil, err
	}
	var dropIns []source
	for _, f := range c.files {
		if path.Dir(f.path) == k0sDropIns {
			dropIns = append(dropIns, f)
		}
	}
	if _, err := foreign(dropIns); err != nil {
		return nil, err
	}
	version, header := 2, ""
	if c.version >= 3 {
		version, header = 3, "version = 3\n"
	}
	file, err := c.dropIn(path.Join(k0sDropIns, dropInName), header, version)
	plan.Config = []File{file}
	return plan, err
}

// planMicroK8s is for MicroK8s, which writes containerd's configuration at each start from
// a template. What it replaces there is in strings, so the template itself is TOML.
func planMicroK8s(v View, main string) (*Plan, error) {
	if _, err := v.Read(main); err != nil {
		return nil, err
	}
	plan, err := planPlain(v, main)
	if err != nil {
		return nil, err
	}
	plan.Socket = "" // the template has none, or one with a variable
	return plan, nil
}
