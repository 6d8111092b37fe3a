//go:build integration

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// job is a Job's manifest whose container has the arguments, on the edge. more are lines of
// annotations.
func job(name, key, args string, more ...string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  name: %s
spec:
  template:
    metadata:
      annotations:
        headstart.dev/input: s3://%s/%s
        headstart.dev/store: %s
        %s
    spec:
      runtimeClassName: headstart
      restartPolicy: Never
      nodeSelector:
        kubernetes.io/hostname: %s
      containers:
        - name: digest
          image: %s
          args: [%s]
`, name, testbed.Bucket, key, testbed.Store, strings.Join(more, "\n        "), testbed.Edge, testbed.Witness, args)
}

func runJob(t *testing.T, manifest string) admin.JobOutcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	o, err := bed.Client().RunJob(ctx, strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// printed is what a job's program has written.
func printed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(bed.StateDir(testbed.Edge), "logs", "default."+name+".log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A program that has never heard of Headstart finds its whole input as a file when it starts;
// one that reads by the socket has it as it comes.
func TestAJobHasItsInput(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		more []string
	}{
		"file":   {args: `digest, /headstart/input/job`},
		"socket": {args: `get, /input/job`, more: []string{"headstart.dev/read-by: socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := put(t, "jobs/"+name, 16<<20)
			o := runJob(t, job("job-"+name, "jobs/"+name, c.args, c.more...))
			if o.Reason != admin.Succeeded || o.ExitCode != 0 || o.Node != testbed.Edge {
				t.Fatalf("outcome %+v; it printed %s", o, printed(t, "job-"+name))
			}
			if got := printed(t, "job-"+name); got != want {
				t.Errorf("the program read %s, the object is %s", got, want)
			}
			nothingHalfMade(t)
			traced(t, o.Trace, tracing.Job, tracing.Placement, tracing.SandboxCreate, tracing.RuncCreate, tracing.RuncStart, tracing.RuntimeStart, tracing.Fetch)
		})
	}
}

// traced waits until a trace has the spans.
func traced(t *testing.T, id string, spans ...string) {
	t.Helper()
	eventually(t, "the job's trace", func() error {
		tr, err := bed.Client().Trace(t.Context(), id)
		if err != nil {
			return err
		}
		has := map[string]bool{}
		for _, s := range tr.Spans {
			has[s.Name] = true
		}
		for _, name := range spans {
			if !has[name] {
				return fmt.Errorf("it has no span %s", name)
			}
		}
		return nil
	})
}

// The program does not start, who runs the job learns why, and nothing is left.
func TestAJobWithoutItsInputFails(t *testing.T) {
	put(t, "jobs/over", 2000)
	for name, c := range map[string]struct {
		key    string
		more   []string
		reason string
	}{
		"missing":    {"jobs/missing", nil, "InputNotFound"},
		"over-limit": {"jobs/over", []string{"headstart.dev/input-limit: 1Ki"}, "InputTooLarge"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			o := runJob(t, job("job-"+name, c.key, `digest, /headstart/input/job`, c.more...))
			if o.Reason != c.reason || o.Message == "" || !strings.HasPrefix(o.Field, "headstart.dev/") {
				t.Errorf("after %s the outcome is %+v", time.Since(began), o)
			}
			if got := printed(t, "job-"+name); got != "" {
				t.Errorf("its program has run, and said %s", got)
			}
			nothingHalfMade(t)
		})
	}
}

// A job ends with whoever runs it.
func TestAJobEndsWithItsCaller(t *testing.T) {
	put(t, "jobs/ended", 1000)
	manifest := strings.Replace(job("job-ended", "jobs/ended", ""), "          args: []\n", "          env:\n            - {name: WITNESS_MUTE, value: \"1\"}\n", 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := bed.Client().RunJob(ctx, strings.NewReader(manifest))
		ended <- err
	}()
	// From here on it hears SIGTERM: the kernel keeps that from the first process of a container which has no handler yet.
	eventually(t, "the job's program", func() error {
		if said := printed(t, "job-ended"); said != "mute" {
			return fmt.Errorf("it has said %q", said)
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	nothingHalfMade(t)
}

// A daemon that is killed costs a job whose program has not started, with a clear word, and no
// other: that goes on, and keeps its input.
func TestAJobAndAKilledDaemon(t *testing.T) {
	want := put(t, "jobs/killed", bufferLimit/3)
	for name, c := range map[string]struct {
		until, reason string
		printed       string
		stopped       bool // the store is, so that the input cannot have come before the end
	}{
		"waiting": {until: "input", reason: "JobLost", stopped: true},
		// The daemon's own note that the program has started, for its next process.
		"running": {until: "meta.json", reason: admin.Succeeded, printed: "waiting\n" + want},
	} {
		t.Run(name, func(t *testing.T) {
			full := "job-killed-" + name
			manifest := strings.Replace(job(full, "jobs/killed", `digest, /headstart/input/job`), "          args:",
				"          env:\n            - {name: WITNESS_AWAIT, value: /headstart/input/go}\n          args:", 1)
			type result struct {
				o   admin.JobOutcome
				err error
			}
			if c.stopped {
				stopStore(t)
			}
			ran := make(chan result, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
				defer cancel()
				o, err := bed.Client().RunJob(ctx, strings.NewReader(manifest))
				ran <- result{o, err}
			}()
			var dir string
			eventually(t, "the job is "+name, func() error {
				select {
				case r := <-ran:
					t.Fatalf("it is over: %+v, %v", r.o, r.err)
				default:
				}
				found, err := filepath.Glob(filepath.Join(bed.StateDir(testbed.Edge), "instances", "default-"+full+"-*", c.until))
				if err != nil || len(found) != 1 {
					return errors.Join(fmt.Errorf("there is %v", found), err)
				}
				dir = filepath.Dir(found[0])
				if info, err := os.Stat(found[0]); err != nil || info.Size() == 0 {
					return errors.Join(fmt.Errorf("%s is empty", found[0]), err)
				}
				return nil
			})
			socket := filepath.Join(dir, "socket", "headstart.sock")
			before, err := os.Stat(socket)
			if err != nil && c.printed != "" {
				t.Fatal(err)
			}
			killDaemon(t, testbed.Edge)
			if c.printed != "" { // it ends when the next daemon has it
				eventually(t, "the job has another daemon", func() error {
					now, err := os.Stat(socket)
					if err == nil && os.SameFile(before, now) {
						err = errors.New("its socket is that of the killed one")
					}
					return err
				})
				if err := os.WriteFile(filepath.Join(dir, "input", "go"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := <-ran
			if r.err != nil || r.o.Reason != c.reason || r.o.Message == "" {
				t.Errorf("outcome %+v, %v", r.o, r.err)
			}
			if got := printed(t, full); got != c.printed {
				t.Errorf("the program said %q, want %q", got, c.printed)
			}
			eventually(t, "the node is back", func() error { return joined(t.Context(), testbed.Edge) })
			nothingHalfMade(t)
		})
	}
}

// stopStore has the store answer nobody until the test's end.
func stopStore(t *testing.T) {
	t.Helper()
	pid := bed.S3.PID()
	if pid == 0 {
		t.Fatal("the store does not run")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}
