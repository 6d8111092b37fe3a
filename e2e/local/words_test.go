//go:build integration

package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// cli runs the CLI on the bed's platform, as a user would.
func cli(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(os.Getenv("HEADSTART_BIN"), "headstart"), append([]string{"--run-dir", bed.RunDir()}, args...)...)
}

// say returns what a command prints.
func say(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cli(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("headstart %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Why a function failed is where its operator looks, and nowhere else: in status and trace, not
// in the answer.
func TestTheLastWordsOfAFunction(t *testing.T) {
	deploy(t, testbed.Function{Name: "words", Env: map[string]string{"WITNESS_EXIT": "3", "WITNESS_SAYS": "\x1b[31mconnecting\x1b[0m\nno database at db-7"}})
	a := call{function: "words"}.must(t)
	if a.status != http.StatusBadGateway || a.problem.Title != "FunctionExited" {
		t.Fatalf("answered %d %s", a.status, a.body)
	}
	if strings.Contains(string(a.body), "db-7") {
		t.Errorf("the caller is told what the function says: %s", a.body)
	}
	lastWords(t, "words", a.header.Get("x-headstart-request"), "FunctionExited", "connecting", "no database at db-7")
	if failing := say(t, "status", "--failing"); !strings.Contains(failing, "default/words") {
		t.Errorf("what fails:\n%s", failing)
	}
	if log := say(t, "logs", "words"); !strings.Contains(log, "no database at db-7\n") {
		t.Errorf("its log:\n%s", log)
	}
	for _, s := range spansOf(t, a.header.Get("x-headstart-request")).Spans {
		if strings.Contains(fmt.Sprint(s.Attributes, s.Message), "db-7") { // spans go to others' collectors
			t.Errorf("span %s has it: %v", s.Name, s.Attributes)
		}
	}
}

// What runc says of a program that is not there is there, too.
func TestTheRuntimesWords(t *testing.T) {
	manifest := `
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: nowhere}
spec:
  template:
    spec:
      containers:
      - image: ` + testbed.Witness + `
        command: [/no/such/program]
`
	if _, err := bed.Client().Apply(t.Context(), strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Client().Delete(context.Background(), "default/nowhere"); err != nil {
			t.Error(err)
		}
	})
	a := call{function: "nowhere"}.must(t)
	if a.problem.Title != "SandboxFailed" || strings.Contains(string(a.body), "/no/such/program") {
		t.Fatalf("answered %d %s", a.status, a.body)
	}
	lastWords(t, "nowhere", a.header.Get("x-headstart-request"), "SandboxFailed", `exec: "/no/such/program"`)
}

// lastWords waits until status and trace have the words.
func lastWords(t *testing.T, name, request, reason string, words ...string) {
	t.Helper()
	eventually(t, "the last words", func() error {
		for _, e := range function(t, name).Events {
			if e.Reason == reason && len(e.Log) > 0 {
				return nil
			}
		}
		return fmt.Errorf("events are %+v", function(t, name).Events)
	})
	spansOf(t, request)
	for _, args := range [][]string{{"status", name}, {"status"}, {"trace", request}} {
		out := say(t, args...)
		for _, w := range words { // a waterfall breaks lines
			if !strings.Contains(strings.ReplaceAll(out, "\n  │ ", ""), w) {
				t.Errorf("%v lacks %q:\n%s", args, w, out)
			}
		}
	}
}

func TestALogIsFollowed(t *testing.T) {
	deploy(t, testbed.Function{Name: "talks", Env: map[string]string{"WITNESS_TELL": "1"}})
	tell := func(n string) { call{function: "talks", header: map[string]string{"x-number": n}}.ok(t) }
	tell("one")
	cmd := cli(t.Context(), "logs", "-f", "--tail", "1", "talks")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for _, n := range []string{"one", "two", "three"} {
		if n != "one" {
			tell(n)
		}
		if got := <-lines; !strings.HasSuffix(got, "] request "+n) { // the platform has two nodes
			t.Errorf("got %q, want request %s", got, n)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for line := range lines {
		t.Errorf("more: %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C is an error: %v", err)
	}
}

// A process that was started again is seen, with its time.
func TestRestartsAreShown(t *testing.T) {
	name := "gateway-" + testbed.Edge
	pid := bed.PID(name)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs again", func() error {
		s, err := bed.Client().Status(t.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Parts {
			if p.Name == name && p.State == "Running" && p.Restarts > 0 && p.LastExit == "signal: killed" && !p.ExitedAt.IsZero() {
				return nil
			}
		}
		return fmt.Errorf("processes are %+v", s.Parts)
	})
	if out := say(t, "status", "--failing"); !strings.Contains(out, name) || !strings.Contains(out, "signal: killed") {
		t.Errorf("what fails:\n%s", out)
	}
	deploy(t, testbed.Function{Name: "after"})
	eventually(t, "the gateway serves", func() error {
		_, err := call{function: "after"}.do(t.Context())
		return err
	})
}

// A request that was not sampled has no trace, and the CLI says so.
func TestTracesAreListed(t *testing.T) {
	deploy(t, testbed.Function{Name: "traced"})
	unsampled := call{function: "traced", header: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}}.ok(t)
	out, err := cli(t.Context(), "trace", unsampled.header.Get("x-headstart-request")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "this request was not sampled") {
		t.Errorf("%v: %s", err, out)
	}
	deploy(t, testbed.Function{Name: "traced-too"})
	id := spansOf(t, call{function: "traced-too"}.ok(t).header.Get("x-headstart-request")).ID
	var listed string
	eventually(t, "it is listed, once all that is known of it has come", func() error {
		listed = say(t, "trace")
		if !slices.ContainsFunc(strings.Split(listed, "\n"), func(line string) bool {
			return strings.HasPrefix(line, id) && strings.Contains(line, "default/traced-too") && strings.HasSuffix(line, "cold")
		}) {
			return errors.New("listed:\n" + listed)
		}
		return nil
	})
	if out := say(t, "trace", id); !strings.Contains(out, "saved nothing: no input was on its way during the cold start") {
		t.Errorf("the trace:\n%s", out)
	}
	put(t, "saved/one", 20_000_000)
	deploy(t, testbed.Function{Name: "saves", Annotations: withInput()})
	saved := call{function: "saves", header: forInput("saved/one")}.ok(t).header.Get("x-headstart-request")
	spansOf(t, saved)
	if out := say(t, "trace", saved); !strings.Contains(out, "\nsaved ") || strings.Contains(out, "waited for no cold start") {
		t.Errorf("of a cold request with an input:\n%s", out)
	}
}
