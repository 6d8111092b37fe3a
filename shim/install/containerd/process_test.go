package containerd

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestConfigOnTheCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"containerd": "",
		"containerd --log-level info --config /a.toml":    "/a.toml",
		"containerd -c /a/../b.toml --state /x":           "/b.toml",
		"containerd --config=/a.toml":                     "/a.toml",
		"containerd --config relative.toml":               "",
		"containerd --config":                             "",
		"/usr/bin/containerd --address /x -c=/etc/c.toml": "/etc/c.toml",
	} {
		if got := configOf(strings.Fields(args)); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

// What listens there may be anything; only containerd is ever ended.
func TestOtherProgramsAreNotContainerd(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir, err := os.MkdirTemp("", "hs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = New(dir+"/s", time.Second).Process(t.Context())
	if err == nil || !strings.Contains(err.Error(), "and not containerd") {
		t.Errorf("error %v, want one that says what listens", err)
	}
	if _, err := New(dir+"/none", time.Second).Process(t.Context()); err == nil {
		t.Error("nobody listens, and a process was found")
	}
}
