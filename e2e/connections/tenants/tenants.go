// Package tenants has many tenants' programs open sessions on one node, with a database user for each tenant, while
// servers and the daemon are killed; and counts what must not be.
package tenants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// tenants is how many there are, each with a namespace and a database user of its own.
	tenants = 20
	// unused is how many unused connections each may have.
	unused = 3
	image  = "headstart.local/client:1"
)

// The distances: of the server whose sessions are opened one after the other, which is killed, and of the one with the
// sessions that are kept.
var (
	killed = testbed.Distance{Name: "killed"}
	kept   = testbed.Distance{Name: "kept", RTT: 200 * time.Microsecond}
)

// Config says what is run.
type Config struct {
	// BinDir and WorkDir are the bed's.
	BinDir, WorkDir string
	// Handovers is how many sessions are opened, by all tenants together.
	Handovers int
	Progress  func(string)
}

// Run runs the tenants, and counts.
func Run(ctx context.Context, c Config) (_ Counts, err error) {
	var list strings.Builder
	secrets := map[string]string{}
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 252, byte(10 + i), 1}) }
	for t := range tenants {
		name := nameOf(t)
		secrets[name] = "hunter2-of-" + name
		for i, d := range []testbed.Distance{killed, kept} {
			secured := ""
			if d == killed {
				secured = ", tls: {" + testbed.FarmRoots + "}"
			}
			fmt.Fprintf(&list, "- name: %s-%s\n  namespaces: [%s]\n  origin: node\n  unused: %d\n",
				d.Name, name, name, unused)
			fmt.Fprintf(&list, "  postgres: {address: \"%s:%d\", user: %s, database: %s, credentialsSecret: %s%s}\n",
				at(i), testbed.PostgresPort, name, testbed.FarmDatabase, name, secured)
		}
	}
	farm, err := testbed.OpenFarm(ctx, testbed.FarmConfig{
		Config: testbed.Config{Name: "hstenant", BinDir: c.BinDir, WorkDir: c.WorkDir,
			Subnet: netip.MustParsePrefix("10.251.0.0/16"), Progress: c.Progress},
		Distances: []testbed.Distance{killed, kept}, Settings: []string{"max_connections = 300"},
		Destinations: list.String(), Secrets: secrets})
	if err != nil {
		return Counts{}, err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	var archive bytes.Buffer
	err = ociimage.Build(&archive, ociimage.Image{Ref: image, Entrypoint: []string{"/client"},
		Files: map[string]ociimage.File{"/client": {Source: filepath.Join(c.BinDir, "client"), Mode: 0o755}}})
	if err == nil {
		err = farm.Import(ctx, archive.Bytes())
	}
	for t := range tenants {
		for _, s := range farm.Servers {
			role := fmt.Sprintf("create role %s login password '%s'", nameOf(t), secrets[nameOf(t)])
			err = errors.Join(err, s.Postgres.Exec(ctx, role))
		}
	}
	if err != nil {
		return Counts{}, err
	}
	r := &run{Farm: farm, killed: farm.Servers[0].Postgres, progress: c.Progress, verdict: newVerdict()}
	return r.all(ctx, c.Handovers)
}

func nameOf(tenant int) string { return fmt.Sprintf("t%02d", tenant) }

// run is one run.
type run struct {
	*testbed.Farm
	killed   *testbed.Postgres
	progress func(string)
	verdict  *verdict
}

// warmSessions are each tenant's before a daemon holds connections for it, or is looked at.
const warmSessions = 5

// all runs all tenants with faults, and then once more without, to see what a daemon is left with. A control plane
// that has just begun deals no connections at first, since others may hold them still.
func (r *run) all(ctx context.Context, handovers int) (Counts, error) {
	if err := r.tenants(ctx, "first", warmSessions); err != nil {
		return Counts{}, err
	}
	r.progress("waiting for connections that wait")
	err := testbed.Poll(ctx, dealTimeout, func(ctx context.Context) error {
		held, err := r.held(ctx)
		if err == nil && held < tenants {
			err = fmt.Errorf("the node holds %d unused connections", held)
		}
		return err
	})
	if err != nil {
		return Counts{}, err
	}
	faults, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return r.faults(faults) })
	g.Go(func() error { return r.watch(faults) })
	err = r.tenants(ctx, "faults", handovers/tenants)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return Counts{}, err
	}
	leaks, err := r.leaks(ctx)
	if err != nil {
		return Counts{}, err
	}
	counts := r.verdict.counts()
	counts.Leaks = leaks
	return counts, nil
}

// tenants has each tenant open as many sessions, and returns when all have.
func (r *run) tenants(ctx context.Context, phase string, each int) error {
	gate, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(r.ControlPlaneIP().String(), "0"))
	if err != nil {
		return err
	}
	heard := r.verdict.hear(gate)
	g, ctx := errgroup.WithContext(ctx)
	for t := range tenants {
		g.Go(func() error {
			name := nameOf(t)
			o, err := r.Client().RunJob(ctx, strings.NewReader(job(name, phase, gate.Addr().String(), each)))
			if err == nil && o.Reason != admin.Succeeded {
				err = fmt.Errorf("%s: %s", o.Reason, o.Message)
			}
			if err != nil {
				return fmt.Errorf("tenant %s: %w", name, err)
			}
			return nil
		})
	}
	err = errors.Join(g.Wait(), gate.Close(), heard())
	now := r.verdict.counts()
	r.progress(fmt.Sprintf("%s: %d sessions so far, %d of them had waited, %d failed", phase, now.Handovers,
		now.Waited, now.Failed))
	return err
}

func job(tenant, phase, gate string, each int) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s}
spec:
  template:
    metadata:
      annotations: {headstart.dev/connections: "killed-%[2]s,kept-%[2]s"}
    spec:
      runtimeClassName: headstart
      restartPolicy: Never
      containers:
      - name: client
        image: %[3]s
        args: [tenant, socket, killed-%[2]s, "%[4]d"]
        env:
        - {name: CLIENT_USER, value: %[2]s}
        - {name: CLIENT_DATABASE, value: %[5]s}
        - {name: CLIENT_KEPT, value: kept-%[2]s}
        - {name: CLIENT_GATE, value: "%[6]s"}
`, phase, tenant, image, each, testbed.FarmDatabase, gate)
}

// session is one of a server's, for good: its process, and when that began.
type session struct {
	pid     int32
	started int64
}

func sessionOf(w report.Word) session { return session{w.PID, w.Started.UnixNano()} }
