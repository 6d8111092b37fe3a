package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// failingFor is how long something that went wrong counts as failing: an operator who is called
// looks within it, and what is older has most likely passed.
const failingFor = 15 * time.Minute

// only returns the status of the named functions, all of it without names.
func (c *cli) only(s admin.Status, names []string) (admin.Status, error) {
	if len(names) == 0 {
		return s, nil
	}
	functions := []admin.Function{}
	wanted := map[string]bool{}
	for _, name := range names {
		name = c.functionName(name)
		i := slices.IndexFunc(s.Functions, func(f admin.Function) bool { return f.Name == name })
		if i < 0 {
			return s, fmt.Errorf("no such function: %s; `headstart status` lists them", name)
		}
		if !wanted[name] {
			functions = append(functions, s.Functions[i])
		}
		wanted[name] = true
	}
	s.Functions = functions
	s.Routing = slices.DeleteFunc(
		s.Routing, func(p routing.Problem) bool { return p.Function != "" && !wanted[p.Function] },
	)
	return s, nil
}

// onlyFailing returns what of the status is wrong.
func onlyFailing(s admin.Status, now time.Time) admin.Status {
	recent := func(at time.Time) bool { return now.Sub(at) < failingFor }
	s.ControlPlanes = slices.DeleteFunc(slices.Clone(s.ControlPlanes), func(p admin.ControlPlane) bool { return p.Problem == "" })
	s.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n admin.Node) bool { return len(n.Problems) == 0 && len(n.Away) == 0 })
	s.Parts = slices.DeleteFunc(slices.Clone(s.Parts), func(p admin.Part) bool { return p.State == partRunning && !recent(p.ExitedAt) })
	functions := []admin.Function{}
	for _, f := range s.Functions {
		f.Events = slices.DeleteFunc(slices.Clone(f.Events), func(e event.Event) bool { return !recent(e.Last) })
		if f.Refused || len(f.Events) > 0 {
			functions = append(functions, f)
		}
	}
	s.Functions = functions
	if s.Mesh != nil && s.Mesh.Installed && len(s.Mesh.Problems) == 0 {
		s.Mesh = nil
	}
	return s
}

// nothing says whether onlyFailing has left nothing.
func nothing(s admin.Status) bool {
	return len(s.ControlPlanes)+len(s.Nodes)+len(s.Parts)+len(s.Functions)+len(s.Routing) == 0 && s.Mesh == nil
}

// printFailing writes what of the status is wrong. Where that has no node, all nodes are well, or
// none is there: then that is what is wrong.
func printFailing(out io.Writer, s admin.Status, now time.Time) error {
	failing, nobody := onlyFailing(s, now), ""
	if len(s.Nodes) == 0 {
		nobody = noNode
	} else if nothing(failing) {
		_, err := fmt.Fprintln(out, "Nothing is failing.")
		return err
	}
	var tables bytes.Buffer // each table but the first begins with an empty line
	if err := printTables(&tables, failing, now, nobody, ""); err != nil {
		return err
	}
	_, err := out.Write(bytes.TrimPrefix(tables.Bytes(), []byte("\n")))
	return err
}

// partRunning is the state of a process that has nothing to tell.
const partRunning = "Running"

// printParts writes the processes that have ended at some time.
func printParts(out io.Writer, parts []admin.Part, now time.Time) error {
	rows := [][]string{}
	for _, p := range parts {
		if p.State == partRunning && p.LastExit == "" {
			continue
		}
		ended := ""
		if p.LastExit != "" {
			ended = fmt.Sprintf("%s ago: %s", max(now.Sub(p.ExitedAt).Round(time.Second), 0), p.LastExit)
		}
		since := max(now.Sub(p.Since).Round(time.Second), 0)
		rows = append(rows, []string{p.Name, p.State, since.String(), fmt.Sprint(p.Restarts), ended})
	}
	if len(rows) == 0 {
		return nil
	}
	if err := printTable(out, "", rows, "PROCESS", "STATE", "FOR", "RESTARTS", "LAST ENDED"); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// printLastLines writes why each function's latest instance failed, where that is known.
func printLastLines(out io.Writer, functions []admin.Function) error {
	for _, f := range functions {
		for _, e := range slices.Backward(f.Events) {
			if len(e.Log) == 0 {
				continue
			}
			if _, err := fmt.Fprintf(out, "\n%s: %s on %s; the last words:\n", nodeapi.Printable(f.Name), nodeapi.Printable(e.Reason), nodeapi.Printable(e.Node)); err != nil {
				return err
			}
			for _, line := range e.Log {
				if _, err := fmt.Fprintln(out, "  │ "+nodeapi.Printable(line)); err != nil {
					return err
				}
			}
			break
		}
	}
	return nil
}
