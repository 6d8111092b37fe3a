// Command affected prints those of the packages of tests on a cluster that can be touched by
// what has changed since all of them passed.
//
//	affected -since COMMIT PACKAGE...
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cluster/affected"
)

const module = "github.com/headstart-mesh/headstart/"

// world is what suites import that run on a cluster with Headstart installed.
const world = "e2e/cluster/world"

// programs are what runs there.
var programs = []string{"control-plane/cmd/headstart", "control-plane/cmd/headstart-controlplane", "shim/cmd/headstart-node",
	"shim/cmd/containerd-shim-headstart-v2", "shim/cmd/headstart-installer", "e2e/linkemu/cmd/linkemu", "e2e/functions/fire", "e2e/functions/witness"}

func main() {
	since := flag.String("since", "", "commit at which all tests passed; one that is unknown touches all")
	flag.Parse()
	if err := run(os.Stdout, *since, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, since string, packages []string) error {
	suites, err := list(packages)
	if err != nil {
		return err
	}
	changed, err := changes(since)
	if err != nil {
		fmt.Fprintln(os.Stderr, "affected: all tests:", err)
		return show(w, suites)
	}
	return show(w, affected.By(changed, suites))
}

func show(w io.Writer, suites []affected.Suite) error {
	for _, s := range suites {
		if _, err := fmt.Fprintln(w, "./"+s.Package); err != nil {
			return err
		}
	}
	return nil
}

// changes are the files that differ from the commit, in the working copy, too.
func changes(since string) ([]string, error) {
	if since == "" {
		return nil, errors.New("it is not said since when")
	}
	out, err := output("git", "diff", "--name-only", "--no-renames", since, "--")
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

// list asks Go what the packages and the programs are made of.
func list(packages []string) ([]affected.Suite, error) {
	args := []string{"list", "-test", "-tags", "cluster", "-json=ImportPath,Deps"}
	for _, p := range append(append([]string{}, packages...), programs...) {
		args = append(args, "./"+filepath.Clean(p))
	}
	out, err := output("go", args...)
	if err != nil {
		return nil, err
	}
	of := map[string]map[string]bool{} // by directory; what is built for a test counts for its package
	for d := json.NewDecoder(bufio.NewReader(bytes.NewReader(out))); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says: %w", err)
		}
		dir, ok := directory(p.ImportPath)
		if !ok {
			continue
		}
		if of[dir] == nil {
			of[dir] = map[string]bool{dir: true}
		}
		for _, dep := range p.Deps {
			if d, ok := directory(dep); ok {
				of[dir][d] = true
			}
		}
	}
	var suites []affected.Suite
	for _, p := range packages {
		s := affected.Suite{Package: filepath.Clean(p)}
		s.Of = of[s.Package]
		if s.World = s.Of[world]; s.World {
			for _, program := range programs {
				for dir := range of[program] {
					s.Of[dir] = true
				}
			}
		}
		suites = append(suites, s)
	}
	return suites, nil
}

// directory is that of one of our packages: a/b of module/a/b, module/a/b.test and
// module/a/b_test [module/a/b.test].
func directory(importPath string) (string, bool) {
	name, _, _ := strings.Cut(importPath, " ")
	dir, ours := strings.CutPrefix(name, module)
	return strings.TrimSuffix(strings.TrimSuffix(dir, ".test"), "_test"), ours
}

func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
