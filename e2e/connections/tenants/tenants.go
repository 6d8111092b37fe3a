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
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// tenants is how many there are, each with a namespace of its own. As many as sharers have their destinations and
	// database user in common.
	tenants = 20
	sharers = 5
	// scarce is how many unused connections every other destination may have: fewer than its tenants want, and none for
	// half a minute after a daemon was killed, which may have them still. The others have plenty.
	scarce = sharers - 1
	plenty = 12 * sharers
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
	for first := 0; first < tenants; first += sharers {
		name := userOf(first)
		secrets[name] = "hunter2-of-" + name
		var namespaces []string
		for t := range sharers {
			namespaces = append(namespaces, nameOf(first+t))
		}
		for i, d := range []testbed.Distance{killed, kept} {
			secured := ""
			if d == killed {
				secured = ", tls: {" + testbed.FarmRoots + "}"
			}
			fmt.Fprintf(&list, "- name: %s-%s\n  namespaces: [%s]\n  origin: node\n  unused: %d\n",
				d.Name, name, strings.Join(namespaces, ", "), allowed(first))
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
	for name, password := range secrets {
		for _, s := range farm.Servers {
			role := fmt.Sprintf("create role %s login password '%s'", name, password)
			err = errors.Join(err, s.Postgres.Exec(ctx, role))
		}
	}
	if err != nil {
		return Counts{}, err
	}
	r := &run{Farm: farm, killed: farm.Servers[0].Postgres, progress: c.Progress, verdict: newVerdict(),
		fullest: map[string]int{}}
	return r.all(ctx, c.Handovers)
}

func nameOf(tenant int) string { return fmt.Sprintf("t%02d", tenant) }

// userOf is the database user of a tenant, and of those that it shares its destinations with.
func userOf(tenant int) string { return fmt.Sprintf("u%02d", tenant-tenant%sharers) }

// allowed is how many unused connections a tenant's destinations may have, each.
func allowed(tenant int) int {
	if tenant/sharers%2 == 0 {
		return scarce
	}
	return plenty
}

// applicationOf is what a tenant's driver says that it is. Every other one says what others do, and its sessions are
// only its own because they were opened for it.
func applicationOf(tenant int) string {
	if tenant%2 == 0 {
		return "common"
	}
	return nameOf(tenant)
}

// run is one run.
type run struct {
	*testbed.Farm
	killed   *testbed.Postgres
	progress func(string)
	verdict  *verdict

	looks   atomic.Int64   // at how many unused sessions there are
	fullest map[string]int // the most that were seen of a destination
}

// warmSessions are each tenant's before a daemon holds connections for it, or is looked at.
const warmSessions = 5

// all runs all tenants with faults, and then once more without, to see what a daemon is left with. A control plane
// that has just begun deals no connections at first, since others may hold them still.
func (r *run) all(ctx context.Context, handovers int) (Counts, error) {
	if _, err := r.tenants(ctx, "first", warmSessions); err != nil {
		return Counts{}, err
	}
	if err := r.full(ctx); err != nil {
		return Counts{}, err
	}
	watched, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return r.watch(watched) })
	leaks, err := r.faultsAndLeaks(ctx, handovers)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return Counts{}, err
	}
	for first := 0; first < tenants; first += sharers {
		for _, s := range r.Servers {
			if at := s.Name + "-" + userOf(first); r.fullest[at] < scarce {
				return Counts{}, fmt.Errorf("%s has had %d unused sessions at most: its limit was not tried", at,
					r.fullest[at])
			}
		}
	}
	counts := r.verdict.counts()
	counts.Leaks = leaks
	return counts, nil
}

func (r *run) faultsAndLeaks(ctx context.Context, handovers int) (leaks int, err error) {
	faults, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return r.faults(faults) })
	_, err = r.tenants(ctx, "faults", handovers/tenants)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return 0, err
	}
	return r.leaks(ctx)
}

// full waits until the daemon holds one unused connection for each tenant, or as many as it may.
func (r *run) full(ctx context.Context) error {
	r.progress("waiting for connections that wait")
	return testbed.Poll(ctx, dealTimeout, func(ctx context.Context) error {
		held, err := r.held(ctx)
		for t := 0; t < tenants; t += sharers {
			for _, s := range r.Servers {
				at := s.Name + "-" + userOf(t)
				if want := min(sharers, allowed(t)); err == nil && held[at] < want {
					err = fmt.Errorf("the node holds %d of %d unused connections of %s", held[at], want, at)
				}
			}
		}
		return err
	})
}

// tenants has each tenant open as many sessions. It returns when all have and have ended, and how many descriptors
// their shims had when all sessions but those that are kept were over.
func (r *run) tenants(ctx context.Context, phase string, each int) (ofShims int, err error) {
	gate, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(r.ControlPlaneIP().String(), "0"))
	if err != nil {
		return 0, err
	}
	over, release := make(chan struct{}, tenants), make(chan struct{})
	heard := r.verdict.hear(gate, over, release)
	g, running := errgroup.WithContext(ctx)
	for t := range tenants {
		g.Go(func() error {
			o, err := r.Client().RunJob(running, strings.NewReader(job(t, phase, gate.Addr().String(), each)))
			if err == nil && o.Reason != admin.Succeeded {
				err = fmt.Errorf("%s: %s", o.Reason, o.Message)
			}
			if err != nil {
				return fmt.Errorf("tenant %s: %w", nameOf(t), err)
			}
			return nil
		})
	}
	g.Go(func() (err error) {
		defer close(release)
		for range tenants {
			select {
			case <-over:
			case <-running.Done():
				return nil
			}
		}
		ofShims, err = r.ofShims(running)
		return err
	})
	err = errors.Join(g.Wait(), gate.Close(), heard())
	now := r.verdict.counts()
	r.progress(fmt.Sprintf("%s: %d sessions so far, %d of them had waited, %d failed", phase, now.Handovers,
		now.Waited, now.Failed))
	return ofShims, err
}

func job(tenant int, phase, gate string, each int) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s}
spec:
  template:
    metadata:
      annotations: {headstart.dev/connections: "killed-%[3]s,kept-%[3]s"}
    spec:
      runtimeClassName: headstart
      restartPolicy: Never
      containers:
      - name: client
        image: %[4]s
        args: [tenant, socket, killed-%[3]s, "%[5]d"]
        env:
        - {name: CLIENT_TENANT, value: %[2]s}
        - {name: CLIENT_USER, value: %[3]s}
        - {name: PGAPPNAME, value: %[6]s}
        - {name: CLIENT_DATABASE, value: %[7]s}
        - {name: CLIENT_KEPT, value: kept-%[3]s}
        - {name: CLIENT_GATE, value: "%[8]s"}
`, phase, nameOf(tenant), userOf(tenant), image, each, applicationOf(tenant), testbed.FarmDatabase, gate)
}

// session is one of a server's, for good: its process, and when that began.
type session struct {
	pid     int32
	started int64
}

func sessionOf(w report.Word) session { return session{w.PID, w.Started.UnixNano()} }
