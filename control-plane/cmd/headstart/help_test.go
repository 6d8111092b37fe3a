package main

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Somebody who knows nothing finds the way by the help texts.
func TestHelpTeaches(t *testing.T) {
	for command, teaches := range map[string][]string{
		"":             {"headstart up", "headstart apply -f service.yaml", "headstart status", "headstart trace", "headstart check --pre", "completion", "--run-dir"},
		"up":           {"needs root", "until Ctrl-C", "headstart up --nodes 2 --stores stores.yaml", "--state-dir", `default "/var/lib/headstart"`},
		"apply":        {"serving.knative.dev/v1", "all of them or none", "cat service.yaml | headstart apply -f -", "docs/reference/knative-service.md"},
		"delete":       {"NAMESPACE/NAME", "namespace default", "headstart delete fire"},
		"status":       {"how to call a function", "--output"},
		"logs":         {"NAMESPACE/NAME", "--follow", "--tail", "kubectl"},
		"weights":      {"NAMESPACE/NAME", "how far nodes are", "--gateway", "--output"},
		"trace":        {"x-headstart-request", "waterfall"},
		"image":        {"import"},
		"image import": {"docker save"},
		"check":        {"--pre", "-o json", "changes nothing", "exit status is 1", "docs/reference/checks.md", "--istio-namespace", "--context"},
		"version":      {"Print the version", "--client"},
	} {
		stdout, _, err := headstart(t, "", append(strings.Fields(command), "--help")...)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range teaches {
			if !strings.Contains(stdout, words) {
				t.Errorf("the help of %q does not say %q:\n%s", command, words, stdout)
			}
		}
	}
}

func TestEveryCommandIsDescribed(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short text %q", c.CommandPath(), c.Short)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 90 {
				t.Errorf("%s: a line of %d characters", c.CommandPath(), len(line))
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(command("headstart"))
}

func TestUnknownCommandsAreExplained(t *testing.T) {
	_, _, err := headstart(t, "", "stauts")
	if err == nil || !strings.Contains(err.Error(), `unknown command "stauts"`) || !strings.Contains(err.Error(), "status") {
		t.Errorf("error is %v", err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		stdout, _, err := headstart(t, "", "completion", shell)
		if err != nil || !strings.Contains(stdout, "headstart") {
			t.Errorf("%s: %v, %d bytes", shell, err, len(stdout))
		}
	}
}

func TestVersion(t *testing.T) {
	expect(t, nodeapi.Version+"\n", "version", "--client")
	expect(t, "{\n  \"version\": \""+nodeapi.Version+"\"\n}\n", "version", "--client", "-o", "json")
	expect(t, nodeapi.Version+"\nPART            VERSION\ncontrol plane   v1\n1 node          v1\n1 node          v1.2.3\n", "version", "--run-dir", serve(t, &backend{status: city()}))
	expect(t, "headstart version "+nodeapi.Version+"\n", "--version")
}

func TestTrace(t *testing.T) {
	b := &backend{trace: trace.Trace{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Spans: []trace.Span{{Name: "gateway", Service: "headstart-gateway", ID: "1", Status: trace.OK}}}}
	dir := serve(t, b)
	stdout, _, err := headstart(t, "", "trace", b.trace.ID, "--run-dir", dir)
	if err != nil || !strings.Contains(stdout, "gateway") || strings.Contains(stdout, "\x1b") {
		t.Errorf("%v, printed:\n%s", err, stdout)
	}
	expect(t, `{
  "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
  "spans": [
    {
      "name": "gateway",
      "service": "headstart-gateway",
      "spanId": "1",
      "start": "0001-01-01T00:00:00Z",
      "end": "0001-01-01T00:00:00Z",
      "durationMs": 0,
      "status": "ok"
    }
  ],
  "saved": {
    "ms": 0,
    "ofMs": 0,
    "scheduleMs": 0,
    "coldStartMs": 0,
    "transferMs": 0,
    "executeMs": 0,
    "reason": "the request waited for no cold start"
  }
}
`, "trace", b.trace.ID, "-o", "json", "--run-dir", dir)
	expectError(t, "no such trace; the latest are kept, and a request's id is in its answer's x-headstart-request header; `headstart trace` lists them, and what was not sampled has none", "trace", "unknown", "--run-dir", dir)
	expectError(t, "accepts at most 1 arg(s), received 2", "trace", "one", "two")
}

// Before anything is started, up says all that is missing and how to get it.
func TestUpSaysWhatIsMissing(t *testing.T) {
	if os.Geteuid() == 0 {
		empty := t.TempDir()
		t.Setenv("PATH", empty)
		_, stderr, err := headstart(t, "", "up", "--bin-dir", empty, "--cni-plugins", empty, "--run-dir", empty)
		if err == nil || stderr != "" {
			t.Fatalf("error is %v; stderr: %s", err, stderr)
		}
		for _, want := range []string{
			"headstart-node is not in " + empty + ": `make build` puts it there; --bin-dir names another place",
			"envoy is not in " + empty,
			"containerd is not installed: on Debian and Ubuntu, `apt-get install containerd`",
			"the CNI plugin bridge is not in " + empty + ": `apt-get install containernetworking-plugins`, or name its directory by --cni-plugins",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q:\n%v", want, err)
			}
		}
	}
	asNobody(t, func() {
		expectError(t, "the embedded platform makes network namespaces and containers: run it as root, for example by sudo", "up", "--bin-dir", "/nowhere")
	})
}

// asNobody calls f without root's rights, on a thread that ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // and never unlocked: the thread is of no more use
			const nobody, same = 65534, ^uintptr(0)
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, nobody, same); errno != 0 {
				t.Error(errno)
				return
			}
		}
		f()
	}()
	<-done
}

func TestUpChecksItsFlags(t *testing.T) {
	expectError(t, `--subnet "everywhere": use an IPv4 range such as 10.201.0.0/16`, "up", "--subnet", "everywhere")
	expectError(t, `unknown command "now" for "headstart up"`, "up", "now")
}
