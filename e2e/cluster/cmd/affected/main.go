// Command affected prints those of the packages of tests on a cluster that can be touched by
// what has changed since all of them passed, and that there is time for. It says on standard
// error which it leaves out.
//
//	affected -since COMMIT -within 15m PACKAGE...
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/affected"
)

const module = "github.com/headstart-mesh/headstart/"

// world is what suites import that run on a cluster with Headstart installed.
const world = "e2e/cluster/world"

// programs are what runs there.
var programs = []string{"control-plane/cmd/headstart", "control-plane/cmd/headstart-controlplane", "shim/cmd/headstart-node",
	"shim/cmd/containerd-shim-headstart-v2", "shim/cmd/headstart-installer", "e2e/linkemu/cmd/linkemu", "e2e/functions/fire", "e2e/functions/witness"}

// first are the suites of which time is given to first, in this order: the way of a user, then
// what is broken around it.
var first = []string{"e2e/cluster/journey", "e2e/cluster/faults", "e2e/cluster/meshtest"}

// takes is how long suites take on two cores that have nothing else to do, all others ordinary.
var takes = map[string]time.Duration{"e2e/cluster/journey": 5 * time.Minute, "e2e/cluster/faults": 6 * time.Minute, "e2e/cluster/meshtest": 5 * time.Minute,
	"e2e/cluster/knative": 6 * time.Minute, "e2e/cluster": 5 * time.Minute}

const ordinary = 20 * time.Second

func main() {
	since := flag.String("since", "", "commit at which all tests passed; one that is unknown touches all")
	within := flag.Duration("within", math.MaxInt64, "how long the tests may take")
	flag.Parse()
	if err := run(os.Stdout, *since, *within, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, since string, within time.Duration, packages []string) error {
	suites, err := list(packages)
	if err != nil {
		return err
	}
	changed, err := changes(since)
	if err != nil {
		fmt.Fprintln(os.Stderr, "· all tests on a cluster count as touched:", err)
	} else {
		suites = affected.By(changed, suites)
	}
	slices.SortStableFunc(suites, func(a, b affected.Suite) int { return cmp.Compare(rank(a), rank(b)) })
	fit, left := affected.Fit(suites, within)
	for _, s := range left {
		fmt.Fprintf(os.Stderr, "· no time for ./%s, which `make test-cluster` runs\n", s.Package)
	}
	for _, s := range fit {
		if _, err := fmt.Fprintln(w, "./"+s.Package); err != nil {
			return err
		}
	}
	return nil
}

// rank is a suite's place among those that time is given to.
func rank(s affected.Suite) int {
	if i := slices.Index(first, s.Package); i >= 0 {
		return i
	}
	return len(first)
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
	unknown, err := output("git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out) + string(unknown)), nil
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
		s.Always, s.Takes = s.Package == first[0], max(ordinary, takes[s.Package])
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
