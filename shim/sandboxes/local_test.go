package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

func TestInstanceBecomesReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving(10*time.Second)...)
		synctest.Wait()
		r.wantReported(starting("one"))
		r.wantStatuses(starting("one"))
		trace := traceparent[:len("00-")+32] // its span is another
		if d, err := r.describe("one"); err != nil || !strings.HasPrefix(d.GetTraceparent(), trace) {
			t.Errorf("described as %v, %v", d, err)
		}

		began := time.Now()
		at := r.ready("one")
		// The probe sees it within its longest pause.
		if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+50*time.Millisecond {
			t.Errorf("ready after %s", took)
		}
		if at.Port() != r.port || !at.Addr().IsLoopback() {
			t.Errorf("ready at %s", at)
		}
		synctest.Wait()
		r.wantReported(starting("one"), isReady("one", at))
		r.wantStatuses(isReady("one", at))
	})
}

func TestStartThatFails(t *testing.T) {
	hour := time.Hour.String()
	for name, test := range map[string]struct {
		id     string
		change func(f *nodeapi.Function)
		want   problem.Problem
		log    []string
		took   time.Duration
	}{
		"no image": {change: func(f *nodeapi.Function) { f.Image = "absent:1" },
			want: problem.Problem{Title: "ImageUnavailable", Status: 502,
				Field:  "spec.template.spec.containers[0].image",
				Detail: "there is no such image"}},
		"no program": {change: func(f *nodeapi.Function) { f.Args = []string{"/run/secret"} },
			log: []string{`["/run/secret"] is not a program`},
			want: problem.Problem{Title: "SandboxFailed", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the node could not start the function's sandbox; the node's log says why"}},
		"ends at once": {change: func(f *nodeapi.Function) { f.Args = []string{"exit", "3"} },
			want: problem.Problem{Title: "FunctionExited", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the function's program ended with code 3 before it was ready"}},
		"ends later": {change: func(f *nodeapi.Function) { f.Args = []string{"exit", "0", "20s"} },
			took: 20 * time.Second,
			want: problem.Problem{Title: "FunctionExited", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the function's program ended with code 0 before it was ready"}},
		"never ready": {change: func(f *nodeapi.Function) { f.Args = append(f.Args, hour) }, took: readyTimeout,
			want: problem.Problem{Title: "ReadyTimeout", Status: 504, Field: "headstart.dev/ready-timeout"}},
		"image never there": {change: func(f *nodeapi.Function) { f.Image = sandboxestest.SlowImage },
			took: readyTimeout,
			want: problem.Problem{Title: "ReadyTimeout", Status: 504, Field: "headstart.dev/ready-timeout",
				Detail: "the function was not ready within 1m0s; fix its start, or allow it more time"}},
		"id that is a path": {id: "../../precious", log: []string{
			`"../../precious" is not the name of a sandbox or container`,
		},
			want: problem.Problem{Title: "SandboxFailed", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the node could not start the function's sandbox; the node's log says why"}},
		"id that is nothing": {id: " ", log: []string{`"" is not the name of a sandbox or container`},
			want: problem.Problem{Title: "SandboxFailed", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the node could not start the function's sandbox; the node's log says why"}},
		"port that is another": {change: func(f *nodeapi.Function) { f.Port += 65536 },
			want: problem.Problem{Title: "SandboxFailed", Status: 502, Field: "spec.template.spec.containers[0]",
				Detail: "the node could not start the function's sandbox; the node's log says why"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				precious := filepath.Join(r.path, "../../precious")
				if err := os.MkdirAll(precious, 0o700); err != nil {
					t.Fatal(err)
				}
				m := r.message("one", r.serving()...)
				if test.id != "" {
					m.Id = strings.TrimSpace(test.id)
				}
				if test.change != nil {
					test.change(m.Function)
				}
				began := time.Now()
				r.set.Start(m)
				test.want.Type = "https://headstart.dev/errors#" + test.want.Title
				if name == "port that is another" {
					test.log = []string{fmt.Sprintf("port %d is none", m.GetFunction().GetPort())}
				}
				if name == "never ready" {
					test.want.Detail = fmt.Sprintf(
						"the function was not ready within 1m0s: nothing listens on port %d; a program that listens on 127.0.0.1 only, or on another port, cannot be reached; fix its start, or allow it more time",
						m.GetFunction().GetPort(),
					)
				}
				failed := inPhase(m.GetId(), nodeapi.Phase_PHASE_FAILED)
				failed.Reason, failed.Message = test.want.Title, test.want.Detail
				failed.Field, failed.Log = test.want.Field, test.log
				for _, late := range []bool{false, true} { // who comes later learns the same
					_, err := r.set.Ready(t.Context(), m.GetId())
					var got *problem.Problem
					if !errors.As(err, &got) {
						t.Fatal(err)
					}
					if diff := cmp.Diff(test.want, *got); diff != "" {
						t.Errorf("problem (-want +got):\n%s", diff)
					}
					if took := time.Since(began); took != test.took {
						t.Errorf("told after %s, want %s", took, test.took)
					}
					// And that it may have another one, which who waited may not. Whoever asks
					// while one fails at once may be either.
					if got := errors.As(err, new(problem.TooLate)); got != late && (late || test.took > 0) {
						t.Errorf("%v: told that it is too late: %t", err, got)
					}
					// By now the control plane knows, and binds no more requests to it.
					r.wantReported(starting(m.GetId()), failed)
					synctest.Wait()
				}
				r.wantReported(starting(m.GetId()), failed)
				r.wantNothing(m.GetId())
				if _, err := os.Stat(precious); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who waits may send its request again at once: the control plane has to know by then
// that the instance is none.
func TestFailureIsReportedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported, told := make(chan struct{}), make(chan struct{})
		c := sandboxes.Config{Dir: filepath.Join(t.TempDir(), "instances"), Log: slog.New(slog.DiscardHandler)}
		set, err := sandboxes.OpenLocal(t.Context(), c, sandboxestest.NewMemory(95), func(s *nodeapi.InstanceStatus) {
			if s.GetPhase() == nodeapi.Phase_PHASE_FAILED {
				<-reported
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		set.Start((&rig{port: 80}).message("one", "exit", "1"))
		go func() {
			defer close(told)
			if _, err := set.Ready(t.Context(), "one"); err == nil {
				t.Error("it is ready")
			}
		}()
		synctest.Wait()
		select {
		case <-told:
			t.Error("the control plane learns it last")
		default:
		}
		close(reported)
		<-told
	})
}

func TestStopWhileStarting(t *testing.T) {
	for name, change := range map[string]func(f *nodeapi.Function){
		"image is pulled":     func(f *nodeapi.Function) { f.Image = sandboxestest.SlowImage },
		"program gets ready":  func(f *nodeapi.Function) { f.Args = append(f.Args, "1h") },
		"program is stubborn": func(f *nodeapi.Function) { f.Args = []string{"stubborn", f.Args[1], "1h"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				m := r.message("one", r.serving()...)
				change(m.Function)
				r.set.Start(m)
				synctest.Wait()
				began := time.Now()
				r.set.Stop("one", time.Minute)
				r.wantProblem("one", "InstanceStopped")
				synctest.Wait()
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s to stop what nobody uses", took)
				}
				r.wantReported(starting("one"), stopped("one"))
				r.wantNothing("one")
			})
		})
	}
}

func (r *rig) wantProblem(id, title string) {
	r.t.Helper()
	_, err := r.set.Ready(r.t.Context(), id)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != title {
		r.t.Errorf("%v, want %s", err, title)
	}
}

func TestStopWhenReady(t *testing.T) {
	for name, test := range map[string]struct {
		program     func(r *rig) []string
		grace, took time.Duration
	}{
		"heeds the signal":          {program: func(r *rig) []string { return r.serving() }, grace: time.Minute},
		"stubborn":                  {program: (*rig).stubborn, grace: time.Minute, took: time.Minute},
		"stubborn, no grace spoken": {program: (*rig).stubborn, took: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start("one", test.program(r)...)
				at := r.ready("one")
				r.set.Stop("one", test.grace)
				r.set.Stop("one", time.Hour) // the first one counts
				r.set.Stop("other", 0)
				synctest.Wait()
				// Whoever comes now is not sent to a program that ends.
				r.wantProblem("one", "InstanceGone")
				r.wantStatuses()
				if test.took > 0 {
					time.Sleep(test.took - time.Nanosecond)
					synctest.Wait()
					r.wantReported(starting("one"), isReady("one", at))
					if len(r.files()) != 1 {
						t.Error("its inputs went before it")
					}
					time.Sleep(time.Nanosecond)
					synctest.Wait()
				}
				r.wantReported(starting("one"), isReady("one", at), stopped("one"))
				r.wantNothing("one")
			})
		})
	}
}

func TestProgramThatEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving()...)
		at := r.ready("one")
		r.node.Exit("one", 7)
		synctest.Wait()
		ended := stopped("one")
		ended.Reason, ended.Field = "FunctionExited", "spec.template.spec.containers[0]"
		ended.Message = "the function's program ended with code 7"
		r.wantReported(starting("one"), isReady("one", at), ended)
		r.wantProblem("one", "InstanceGone")
		r.wantNothing("one")
	})
}

// Its last words come second: nobody waits for them.
func TestAnInstanceThatEndsSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", "say", "3", "\x1b[31mno database\x1b[0m\ngoodbye\n")
		synctest.Wait()
		failed := inPhase("one", nodeapi.Phase_PHASE_FAILED)
		failed.Reason, failed.Field = "FunctionExited", "spec.template.spec.containers[0]"
		failed.Message = "the function's program ended with code 3 before it was ready"
		said := inPhase("one", nodeapi.Phase_PHASE_FAILED)
		said.Log = []string{"no database", "goodbye"}
		r.wantReported(starting("one"), failed, said)
		r.wantNothing("one")
	})
}

// A control plane repeats itself after a reconnect.
func TestStartTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving()...)
		r.start("one", "exit", "1")
		at := r.ready("one")
		r.start("one", "exit", "1")
		synctest.Wait()
		r.wantReported(starting("one"), isReady("one", at))
	})
}

// A request can be ahead of the news of its instance.
func TestReadyBeforeItIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		asked := make(chan error, 1)
		go func() {
			_, err := r.set.Ready(t.Context(), "late")
			asked <- err
		}()
		time.Sleep(time.Second)
		r.start("other", r.serving()...) // not the one it waits for
		synctest.Wait()
		r.start("late", r.serving(5*time.Second)...)
		if err := <-asked; err != nil {
			t.Error(err)
		}
	})
}

func TestReadyOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		r.wantProblem("none", "InstanceGone")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("told after %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.set.Ready(ctx, "none"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the cancellation", err)
		}
		r.start("one", r.serving(time.Hour)...)
		if _, err := r.set.Ready(ctx, "one"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the cancellation", err)
		}
	})
}

// Why instances ended is not remembered for good, or a function that never starts
// would fill the memory.
func TestEndsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", "exit", "1")
		r.wantProblem("one", "FunctionExited")
		time.Sleep(11 * time.Second)
		r.start("two", "exit", "1")
		r.wantProblem("two", "FunctionExited")
		synctest.Wait()
		r.wantProblem("one", "InstanceGone")
	})
}

// failing is a runtime that is away.
type failing struct{ sandboxes.Containers }

func (failing) List(context.Context) ([]sandboxes.Container, error) {
	return nil, errors.New("away")
}

func TestOpenWithoutRuntime(t *testing.T) {
	c := sandboxes.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	_, err := sandboxes.OpenLocal(t.Context(), c, failing{}, nil)
	if err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("%v, want the reason", err)
	}
}
