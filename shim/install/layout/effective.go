package layout

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/install/edit"
)

// maxImports bounds the files of one configuration.
const maxImports = 256

// The CRI plugin's name, by the configuration's version.
const (
	criV1 = "cri"
	criV2 = "io.containerd.grpc.v1.cri"
	criV3 = "io.containerd.cri.v1.runtime"
)

// plugin is the name of the table of runtimes' owner.
func plugin(version int) string {
	switch {
	case version >= 3:
		return criV3
	case version == 2:
		return criV2
	}
	return criV1
}

// source is one file of a configuration.
type source struct {
	path string
	text []byte
	*edit.Config
}

// config is what containerd reads: the main file, and what it imports.
type config struct {
	files   []source
	version int
	tree    map[string]any
}

// load reads a configuration as containerd does: the main file, then what is imported,
// breadth first. main has to be there.
func load(v View, main string) (*config, error) {
	c := &config{}
	seen := map[string]bool{}
	for todo := []string{main}; len(todo) > 0; {
		p := todo[0]
		todo = todo[1:]
		if seen[p] {
			continue
		}
		if seen[p] = true; len(seen) > maxImports {
			return nil, &Refusal{main, 0, fmt.Sprintf("it imports over %d files", maxImports), "import fewer"}
		}
		text, err := optional(v, p)
		if err != nil {
			return nil, err
		}
		if text == nil && p != main {
			continue // containerd says so itself, when it starts
		}
		parsed, err := decode(p, text)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, source{p, text, parsed})
		if parsed.Version > 0 {
			c.version = max(c.version, parsed.Version)
		}
		c.tree = edit.Merge(c.tree, parsed.Tree)
		more, err := expand(v, p, parsed.Imports)
		if err != nil {
			return nil, err
		}
		todo = append(todo, more...)
	}
	return c, c.check()
}

// decode is edit.Parse with the file's name in the error.
func decode(p string, text []byte) (*edit.Config, error) {
	parsed, err := edit.Parse(text)
	if e, ok := errors.AsType[*edit.SyntaxError](err); ok {
		return nil, &Refusal{p, e.Line, "it is not valid TOML: " + e.Reason, "fix it; containerd does not start with it either"}
	}
	if err != nil {
		return nil, &Refusal{p, 0, err.Error(), "fix it"}
	}
	return parsed, nil
}

// expand returns the files that a file imports.
func expand(v View, from string, patterns []string) ([]string, error) {
	var all []string
	for _, p := range patterns {
		p = absolute(from, p)
		if !strings.Contains(p, "*") {
			all = append(all, p)
			continue
		}
		names, err := v.List(path.Dir(p))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if ok, _ := path.Match(path.Base(p), name); ok {
				all = append(all, path.Join(path.Dir(p), name))
			}
		}
	}
	return all, nil
}

// absolute is an import's path: containerd reads relative ones from the importing file's
// directory.
func absolute(from, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(path.Dir(from), p)
}

// check refuses what no runtime can be added to.
func (c *config) check() error {
	for _, f := range c.files {
		for _, name := range []string{criV1, criV2, criV3} {
			if slices.Contains(f.Disabled, name) {
				return &Refusal{f.path, edit.Line(f.text, "disabled_plugins"), fmt.Sprintf("the CRI plugin is disabled (%q)", name),
					"take it out of disabled_plugins, without it Kubernetes cannot use this containerd"}
			}
		}
	}
	return nil
}

// foreign returns nil if nobody else has a runtime of our name in files, and whether
// there is one that is just ours.
func foreign(files []source) (same bool, err error) {
	for _, f := range files {
		for _, name := range []string{criV1, criV2, criV3} {
			at := []string{"plugins", name, "containerd", "runtimes", Handler}
			r := edit.Table(f.Tree, at...)
			if r == nil {
				continue
			}
			if r["runtime_type"] == Shim || r["runtime_path"] == Shim {
				same = true
				continue
			}
			return false, &Refusal{f.path, edit.Line(f.text, at...), fmt.Sprintf("a runtime %q is there already, and is not Headstart's", Handler),
				"rename or remove it"}
		}
	}
	return same, nil
}

// containerd returns the CRI plugin's table that has the runtimes.
func (c *config) containerd() map[string]any {
	for _, name := range []string{criV3, criV2, criV1} {
		if t := edit.Table(c.tree, "plugins", name, "containerd"); t != nil {
			return t
		}
	}
	return nil
}

// socket is where this configuration has containerd listen, empty for its default.
func (c *config) socket() string {
	for _, t := range []map[string]any{edit.Table(c.tree, "plugins", "io.containerd.server.v1.grpc"), edit.Table(c.tree, "grpc")} {
		if s, ok := t["address"].(string); ok && path.IsAbs(s) {
			return s
		}
	}
	return ""
}
