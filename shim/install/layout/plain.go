package layout

import (
	"path"
	"strings"

	"github.com/headstart-mesh/headstart/shim/install/edit"
)

const (
	plainConfig = "/etc/containerd/config.toml"
	dropInName  = "headstart.toml"
)

// planPlain is for a containerd that reads main as it is.
func planPlain(v View, main string) (*Plan, error) {
	text, err := optional(v, main)
	if err != nil {
		return nil, err
	}
	c, err := load(v, main)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Socket: c.socket()}
	if plan.RuncOptions, plan.SystemdCgroup, err = c.runcOptions(); err != nil {
		return nil, err
	}
	same, err := foreign(c.files)
	if err != nil {
		return nil, err
	}
	if same {
		// `containerd config migrate` writes all that containerd knows into one file.
		plan.Notes = append(plan.Notes, "containerd's configuration has the runtime already, outside of Headstart's marks; it is left as it is")
		return plan, nil
	}
	switch {
	case text == nil:
		// Version 2 is what both containerd 1.x and 2.x read. Neither reads a drop-in
		// while the main file is missing.
		file, err := c.dropIn(main, "version = 2\n", 2)
		plan.Config = []File{file}
		return plan, err
	case c.files[0].Version >= 3:
		plan.Config, err = c.withDropIn()
		return plan, err
	}
	f, version := c.decisive(), c.version
	if version >= 3 {
		version = f.Version // containerd 2.x migrates each file by itself
	}
	file, err := c.extend(f, version)
	plan.Config = []File{file}
	return plan, err
}

// decisive is the file that containerd 1.x takes the CRI plugin's settings from: of
// several that have any it counts only the last.
func (c *config) decisive() source {
	last := c.files[0]
	for _, f := range c.files {
		if edit.Table(f.Tree, "plugins", criV1) != nil || edit.Table(f.Tree, "plugins", criV2) != nil {
			last = f
		}
	}
	return last
}

// withDropIn puts the runtime into a file of its own, which containerd 2.x merges. The
// main file changes only if it imports no directory.
func (c *config) withDropIn() ([]File, error) {
	main := c.files[0]
	if dir := importedDir(main); dir != "" {
		file, err := c.dropIn(path.Join(dir, dropInName), "version = 3\n", 3)
		return []File{file}, err
	}
	// Not the whole directory: what lies there unused shall stay so.
	p := path.Join(path.Dir(main.path), "conf.d", dropInName)
	file, err := c.dropIn(p, "version = 3\n", 3)
	if err != nil {
		return nil, err
	}
	after, err := edit.Import(main.text, p)
	if err != nil {
		return nil, &Refusal{main.path, edit.Line(main.text, "imports"), "its imports cannot be read: " + err.Error(), "fix them"}
	}
	imports := []any{p}
	if before, ok := main.Tree["imports"].([]any); ok {
		imports = append(imports, before...)
	}
	return []File{file, {main.path, after}}, only(main, after, map[string]any{"imports": imports})
}

// importedDir is a directory of which main imports every file that is named like our
// drop-in, empty if there is none.
func importedDir(main source) string {
	for _, p := range main.Imports {
		p = absolute(main.path, p)
		ok, _ := path.Match(path.Base(p), dropInName)
		if ok && strings.Contains(path.Base(p), "*") && !strings.ContainsAny(path.Dir(p), "*?[") {
			return path.Dir(p)
		}
	}
	return ""
}
