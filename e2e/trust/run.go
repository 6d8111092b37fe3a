package trust

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Module is the path that packages are below.
const Module = "github.com/headstart-mesh/headstart/"

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// Seen is what tests did.
type Seen struct {
	// Ended has pass, fail or skip by package, a space, and the test's name.
	Ended    map[string]string
	Packages map[string]bool
	// Figures are those that tests log as a line of JSON: {"name": 1.5}.
	Figures map[string]float64
}

// Args are those of a `go test` that runs the attacks and as little else as can be.
func Args(attacks []Attack) []string {
	var packages, tests []string
	for _, a := range attacks {
		packages = append(packages, "./"+a.Package)
		parts := strings.Split(a.reported(), "/")
		for i, p := range parts {
			parts[i] = "^" + regexp.QuoteMeta(p) + "$"
		}
		tests = append(tests, strings.Join(parts, "/"))
	}
	distinct := func(all []string) []string { slices.Sort(all); return slices.Compact(all) }
	// One after the other: those with other programs use fixed devices.
	args := []string{"test", "-count=1", "-p", "1", "-tags", string(Integration), "-run", strings.Join(distinct(tests), "|")}
	return append(args, distinct(packages)...)
}

// Run runs a `go test`, with -json, and prints what it says: all, or what failed and a line for each package.
func Run(ctx context.Context, args []string, all bool, w io.Writer) (Seen, error) {
	cmd := exec.CommandContext(ctx, "go", slices.Insert(slices.Clone(args), 1, "-json")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // tests take down what they have made
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Seen{}, err
	}
	if err := cmd.Start(); err != nil {
		return Seen{}, err
	}
	seen, err := Read(out, all, w)
	return seen, errors.Join(err, cmd.Wait())
}

// Read takes the output of `go test -json`, to its end.
func Read(r io.Reader, all bool, w io.Writer) (Seen, error) {
	seen := Seen{Ended: map[string]string{}, Packages: map[string]bool{}, Figures: map[string]float64{}}
	held := map[string]*bytes.Buffer{} // by package, until it ends
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Output: string(line)}
			}
			seen.take(e)
			say(e, all, held, w)
		}
		if errors.Is(err, io.EOF) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
	}
}

func say(e event, all bool, held map[string]*bytes.Buffer, w io.Writer) {
	switch {
	case all || e.Package == "":
		fmt.Fprint(w, e.Output)
	case e.Action == "fail" && e.Test == "" && held[e.Package] != nil:
		_, _ = held[e.Package].WriteTo(w)
	case strings.HasPrefix(e.Output, "ok ") && e.Test == "":
		fmt.Fprint(w, e.Output)
	default:
		if held[e.Package] == nil {
			held[e.Package] = &bytes.Buffer{}
		}
		held[e.Package].WriteString(e.Output)
	}
}

func (s *Seen) take(e event) {
	pkg := strings.TrimPrefix(e.Package, Module)
	switch e.Action {
	case "pass", "fail", "skip":
		if s.Packages[pkg] = true; e.Test != "" {
			s.Ended[pkg+" "+e.Test] = e.Action
		}
	case "output":
		var figures map[string]float64
		if at := strings.Index(e.Output, `{"`); at >= 0 && json.Unmarshal([]byte(e.Output[at:]), &figures) == nil {
			for name, v := range figures {
				s.Figures[name] = v
			}
		}
	}
}

// reported is the test's name as `go test` says it.
func (a Attack) reported() string { return strings.ReplaceAll(a.Test, " ", "_") }
