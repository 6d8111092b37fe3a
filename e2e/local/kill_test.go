//go:build integration

package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Whatever is killed in the middle of a cold request, the request is answered or fails
// clearly, and the next one works.
func TestKilledPartsComeBack(t *testing.T) {
	digest := put(t, "kill/one", 20_000_000)
	for _, process := range []string{"headstart-node-" + testbed.Edge, "headstart-controlplane", "gateway-" + testbed.Edge, "containerd-" + testbed.Edge} {
		// Once while the sandbox is being made, once while the function works.
		for _, moment := range []string{"starting", "working"} {
			t.Run(process+" while "+moment, func(t *testing.T) {
				name := "kill-" + process + "-" + moment
				deploy(t, testbed.Function{Name: name, Annotations: withInput()})
				type result struct {
					a   answer
					err error
				}
				answered := make(chan result, 1)
				go func() {
					a, err := call{function: name, path: "/sleep?ms=1500", header: forInput("kill/one")}.do(context.Background())
					answered <- result{a, err}
				}()
				eventually(t, "the function is "+moment, func() error {
					select {
					case r := <-answered:
						t.Fatalf("it was answered before: %+v, %v", r.a, r.err)
					default:
					}
					in := function(t, name).Instances
					if len(in) == 0 || moment == "working" && in[0].Phase != "Ready" {
						return fmt.Errorf("instances %+v", in)
					}
					return nil
				})
				pid := bed.PID(process)
				if pid == 0 {
					t.Fatal(process, "does not run")
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the process is gone", func() error {
					if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
						return fmt.Errorf("process %d is still there", pid)
					}
					return nil
				})
				r := <-answered
				switch {
				case r.err != nil:
					// The client saw a broken connection: only the gateway's own death may do that.
					if process != "gateway-"+testbed.Edge {
						t.Errorf("the connection broke: %v", r.err)
					}
				case r.a.status == http.StatusOK:
					if r.a.report.Body.SHA256 != digest {
						t.Errorf("a wrong answer: %+v", r.a.report.Body)
					}
				case r.a.problem.Title == "" || r.a.problem.Detail == "":
					t.Errorf("it failed without a clear word: %d %s", r.a.status, r.a.body)
				}
				t.Logf("the request under way: %v, %d %s", r.err, r.a.status, r.a.problem.Title)
				if process == "gateway-"+testbed.Edge {
					eventually(t, "the gateway is back", func() error {
						_, err := call{function: "nobody"}.do(t.Context())
						return err
					})
				}
				if process == "headstart-node-"+testbed.Edge {
					eventually(t, "the node is back", func() error { return joined(t.Context(), testbed.Edge) })
				}
				next := call{function: name, header: forInput("kill/one")}.must(t)
				if next.status != http.StatusOK || next.report.Body.SHA256 != digest || next.report.File.SHA256 != digest {
					t.Errorf("the next request: %d %s", next.status, next.body)
				}
			})
		}
	}
	eventually(t, "all processes run", func() error {
		var errs []error
		for _, s := range bed.Platform.Status() {
			if s.PID == 0 {
				errs = append(errs, fmt.Errorf("%s: %s", s.Name, s.LastExit))
			}
		}
		return errors.Join(errs...)
	})
	nothingHalfMade(t)
}
