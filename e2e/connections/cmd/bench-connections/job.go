package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// The ways by which the client connects, and what connects it.
const (
	direct     = "direct"     // it dials
	fetch      = "fetch"      // the paper's way
	descriptor = "descriptor" // it inherits
	socket     = "socket"
	connect    = "connect"   // it dials, and the shim answers
	pgBouncer  = "pgbouncer" // of the node, by its socket
)

// program is a container that runs once.
type program struct {
	// name is the job's: what is kept for the next start is kept by it.
	name        string
	image       string
	args        []string
	env         map[string]string
	destination string // empty: it has none
	by          string // connections-by; empty: socket
	// pgBouncer is mounted at /pgbouncer; nil: none. No pod can mount a node's socket by a job of one machine:
	// containerd runs the container by itself.
	pgBouncer *testbed.PgBouncer
}

// ran is what is known of a program's run.
type ran struct {
	report report.Report
	// lifetime is from the order to the end of all that was made for it.
	lifetime time.Duration
}

// run runs a program once. It is an error if the program fails.
func (b *bench) run(ctx context.Context, p program) (ran, error) {
	began := time.Now()
	said, err := b.start(ctx, p)
	r := ran{lifetime: time.Since(began)}
	if err != nil {
		return r, fmt.Errorf("%s: %w", p.name, err)
	}
	if p.pgBouncer == nil { // reading its log is no part of its life
		if said, err = b.lastLine(ctx, p.name); err != nil {
			return r, fmt.Errorf("%s: its log: %w", p.name, err)
		}
	}
	if err := json.Unmarshal([]byte(said), &r.report); err != nil {
		return r, fmt.Errorf("%s: it said %q: %w", p.name, said, err)
	}
	if r.report.Began.Before(began) {
		return r, fmt.Errorf("%s: its log ends with an earlier run's report", p.name)
	}
	return r, nil
}

func (b *bench) start(ctx context.Context, p program) (said string, err error) {
	if p.pgBouncer != nil {
		return b.byContainerd(ctx, p)
	}
	o, err := b.farm.Client().RunJob(ctx, strings.NewReader(p.manifest()))
	if err == nil && o.Reason != admin.Succeeded {
		last, _ := b.lastLine(ctx, p.name) // it only explains
		err = fmt.Errorf("%s: %s: %s", o.Reason, o.Message, last)
	}
	return "", err
}

func (p program) manifest() string {
	var m strings.Builder
	fmt.Fprintf(&m, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec:\n  template:\n", p.name)
	if p.destination != "" {
		fmt.Fprintf(&m, "    metadata:\n      annotations:\n        headstart.dev/connections: %s\n", p.destination)
		if p.by != "" {
			fmt.Fprintf(&m, "        headstart.dev/connections-by: %s\n", p.by)
		}
	}
	m.WriteString("    spec:\n      runtimeClassName: headstart\n      restartPolicy: Never\n      containers:\n")
	fmt.Fprintf(&m, "      - name: client\n        image: %s\n", p.image)
	list, _ := json.Marshal(p.args) // strings always can be
	fmt.Fprintf(&m, "        args: %s\n        env:\n", list)
	for name, value := range p.env {
		fmt.Fprintf(&m, "        - {name: %s, value: %q}\n", name, value)
	}
	return m.String()
}

// byContainerd runs the program by containerd alone.
func (b *bench) byContainerd(ctx context.Context, p program) (said string, err error) {
	args := []string{"--address", filepath.Join(b.farm.RunDir(), testbed.Edge, "containerd.sock"),
		"--namespace", nodeapi.ContainerdNamespace,
		"run", "--rm", "--mount", "type=bind,src=" + p.pgBouncer.Dir + ",dst=/pgbouncer,options=rbind:ro"}
	for name, value := range p.env {
		args = append(args, "--env", name+"="+value)
	}
	args = append(append(args, p.image, p.name, "/client"), p.args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// lastLine is the last one that the job has written.
func (b *bench) lastLine(ctx context.Context, job string) (last string, err error) {
	err = b.farm.Client().Logs(ctx, admin.LogOptions{Function: "default/" + job, Tail: 1}, func(l admin.LogLine) error {
		last = l.Line
		return nil
	})
	return last, err
}
