package install_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/installtest"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

var update = flag.Bool("update", false, "write the expected files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixtures are all nodes in testdata.
func fixtures(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.node")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".node"))
	}
	return names
}

// plant makes the node that a fixture describes: "-- path [mode] --" and the file's
// content, or "-- path -> target --" for a link.
func plant(t *testing.T, fixture string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", fixture+".node"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, rest, _ := strings.Cut(string(text), "\n-- ")
	for part := range strings.SplitSeq(rest, "\n-- ") {
		head, body, _ := strings.Cut(part, " --")
		body = strings.TrimPrefix(body, "\n")
		if body != "" && !strings.HasSuffix(body, "\n") {
			body += "\n" // what the next header's separator has taken
		}
		name, target, link := strings.Cut(head, " -> ")
		name, mode, _ := strings.Cut(name, " ")
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if link {
			err = os.Symlink(target, name)
		} else {
			bits := uint64(0o644)
			if mode != "" {
				if bits, err = strconv.ParseUint(mode, 8, 32); err != nil {
					t.Fatal(err)
				}
			}
			if err = os.WriteFile(name, []byte(body), 0o600); err == nil {
				err = os.Chmod(name, fs.FileMode(bits))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// snapshot is all that is below root: kind, mode, owner and content by path.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		what := fmt.Sprintf("%v %d:%d", info.Mode(), owner.Uid, owner.Gid)
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += "\n" + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			what += " -> " + target
		}
		all[strings.TrimPrefix(p, root)] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// different are the paths that two snapshots do not share, with what they have.
func different(before, after map[string]string) []string {
	var all []string
	for _, p := range slices.Sorted(maps.Keys(after)) {
		if was, ok := before[p]; !ok || was != after[p] {
			all = append(all, "+ "+p+" "+after[p])
		}
	}
	for _, p := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[p]; !ok {
			all = append(all, "- "+p)
		}
	}
	return all
}

// configuration is all that a node's containerd may read; Headstart's own directory and
// temporary files are not of it.
func configuration(t *testing.T, root string) string {
	var b strings.Builder
	all := snapshot(t, root)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		ext := path.Ext(p)
		if (ext == ".toml" || ext == ".tmpl") && !strings.HasPrefix(p, "/opt/headstart") {
			fmt.Fprintf(&b, "%s %s\n", p, all[p])
		}
	}
	return b.String()
}

// nodeLabels is a node in Kubernetes.
type nodeLabels struct {
	ready  bool
	events []string
}

func (n *nodeLabels) SetReady(_ context.Context, ready bool) error {
	n.ready = ready
	return nil
}

func (n *nodeLabels) Announce(_ context.Context, reason, _ string) {
	n.events = append(n.events, reason)
}

// rig is an installer for one node.
type rig struct {
	*install.Installer
	root    string
	tree    *tree.Tree
	runtime *installtest.Runtime
	node    *nodeLabels
}

// newRig has an installer of the given shim for the node below root. containerd runs with
// the configuration that is there.
func newRig(t *testing.T, root, shim string) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(file, []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime := &installtest.Runtime{
		Load:  func() string { return configuration(t, root) },
		Known: func(loaded string) bool { return strings.Contains(loaded, "runtimes.headstart]") },
	}
	runtime.Start()
	r := &rig{root: root, runtime: runtime, node: &nodeLabels{}}
	r.open(t, file)
	return r
}

// open is what a new process of the installer does.
func (r *rig) open(t *testing.T, shim string) {
	t.Helper()
	tr, err := tree.Open(r.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	r.tree = tr
	r.Installer = &install.Installer{
		Settings: install.Settings{Shim: shim, Version: "1.2.3", Restart: true, Verify: true},
		Tree:     tr,
		Connect:  func(string) install.Runtime { return r.runtime },
		Node:     r.node,
		Log:      slog.New(slog.DiscardHandler),
	}
}
