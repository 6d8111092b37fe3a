package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
)

func TestMain(m *testing.M) {
	// Whatever cluster the machine's user has is none of the tests' business.
	_ = os.Setenv("KUBECONFIG", "/nonexistent/kubeconfig") // it fails for names with a = only
	// A connection that the other side has closed first stays for a second, then goes by
	// itself.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// backend is a control plane that answers as it is told.
type backend struct {
	warnings []string // of applying
	err      error
	status   admin.Status
	trace    trace.Trace
	// weights are those of one function.
	weights routing.Explanation

	applied string
	deleted []string
	job     admin.JobOutcome
	traces  trace.Listing
	lines   []admin.LogLine
	asked   admin.LogOptions
}

func (b *backend) RunJob(_ context.Context, manifest io.Reader) (admin.JobOutcome, error) {
	data, err := io.ReadAll(manifest)
	b.applied = string(data)
	return b.job, errors.Join(err, b.err)
}

func (b *backend) Apply(manifest io.Reader) ([]admin.Applied, error) {
	data, err := io.ReadAll(manifest)
	b.applied = string(data)
	return []admin.Applied{{Function: "default/fire", Change: platform.Created, Warnings: b.warnings}, {Function: "city/flood", Change: platform.Unchanged}}, errors.Join(err, b.err)
}

func (b *backend) Delete(function string) error {
	if b.err != nil && len(b.deleted) > 0 {
		return b.err
	}
	b.deleted = append(b.deleted, function)
	return nil
}

func (b *backend) Status() admin.Status { return b.status }

func (b *backend) Weights(function string) (routing.Explanation, bool) {
	return b.weights, function == b.weights.Function
}

func (b *backend) Trace(id string) (trace.Trace, error) {
	if id != b.trace.ID {
		return trace.Trace{}, trace.Unknown
	}
	return b.trace, nil
}

func (b *backend) Traces(string) trace.Listing { return b.traces }

func (b *backend) Logs(_ context.Context, o admin.LogOptions, to func(admin.LogLine) error) error {
	b.asked = o
	for _, l := range b.lines {
		if err := to(l); err != nil {
			return err
		}
	}
	return b.err
}

// serve returns the run directory of a platform with b as its control plane.
func serve(t *testing.T, b *backend) string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: admin.Handler(b)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return dir
}

// headstart runs the command line.
func headstart(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command("headstart")
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// expect runs a command that succeeds.
func expect(t *testing.T, want string, args ...string) {
	t.Helper()
	stdout, stderr, err := headstart(t, "", args...)
	if err != nil || stderr != "" {
		t.Fatalf("%v: %v; stderr:\n%s", args, err, stderr)
	}
	if stdout != want {
		t.Errorf("%v printed:\n%s\nwant:\n%s", args, stdout, want)
	}
}

// expectError runs a command that fails. Nothing that a script could take for data goes
// to standard output.
func expectError(t *testing.T, want string, args ...string) {
	t.Helper()
	stdout, _, err := headstart(t, "", args...)
	if err == nil || err.Error() != want || stdout != "" {
		t.Errorf("%v: error\n%v\nwant\n%s\nstdout: %q", args, err, want, stdout)
	}
}

// city is the status of a platform that has seen something.
func city() admin.Status {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	return admin.Status{
		Version: "v1",
		Nodes: []admin.Node{
			{Name: "edge", Version: "v1.2.3", Gateway: "http://10.201.0.11:8080", Instances: 2},
			{Name: "cloud-with-a-long-name", Version: "v1", Gateway: "http://10.201.0.12:8080"},
		},
		Functions: []admin.Function{
			{Name: "city/flood", Hosts: []string{"flood.city.headstart.local", "flood.city"}, Image: "flood:1", Deleting: true,
				Instances: []admin.Instance{{ID: "flood-1", Node: "edge", Phase: platform.Stopping, Address: netip.MustParseAddrPort("10.1.0.3:8080")}}},
			{Name: "default/fire", Hosts: []string{"fire.default.headstart.local"}, Image: "fire:1", Input: "s3://{header.x-bucket}/{header.x-key}",
				Instances: []admin.Instance{
					{
						ID: "fire-1", Node: "edge", Phase: platform.Ready,
						Address: netip.MustParseAddrPort("10.1.0.2:8080"),
					},
					{ID: "fire-2", Node: "edge", Phase: platform.Stopping},
				},
				Events: []event.Event{
					{Reason: "InputNotFound", Message: "no object \x1b[2J\tin\nvideos", Node: "edge", Count: 3, First: now, Last: now},
					{Reason: "ReadyTimeout", Message: "not ready within 1m0s", Field: "headstart.dev/ready-timeout", Count: 1, First: now, Last: now.Add(time.Hour)}}},
			{Name: "default/idle", Hosts: []string{"idle.default.headstart.local"}, Image: "idle:1", Instances: []admin.Instance{}},
		},
	}
}
