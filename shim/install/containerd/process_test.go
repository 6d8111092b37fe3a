package containerd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/tree"
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

// A containerd is only ended in a way after which systemd starts it again.
func TestEndingKnowsSystemd(t *testing.T) {
	const unit, cgroup = "containerd.service", "0::/system.slice/containerd.service\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		parent int
		cgroup string
		want   unix.Signal
		err    string
	}{
		"always":                {map[string]string{"usr/lib/systemd/system/" + unit: "[Service]\nRestart=always\n"}, 1, cgroup, unix.SIGTERM, ""},
		"on failure":            {map[string]string{"etc/systemd/system/" + unit: "[Service]\nRestart = on-failure\n"}, 1, cgroup, unix.SIGKILL, ""},
		"never":                 {map[string]string{"lib/systemd/system/" + unit: "[Service]\nRestart=no\n"}, 1, cgroup, 0, "Restart=always"},
		"not said":              {map[string]string{"lib/systemd/system/" + unit: "[Service]\n"}, 1, cgroup, 0, unit},
		"a drop-in mends it":    {map[string]string{"lib/systemd/system/" + unit: "[Service]\n", "etc/systemd/system/" + unit + ".d/a.conf": "[Service]\nRestart=always\n"}, 1, cgroup, unix.SIGTERM, ""},
		"/etc counts first":     {map[string]string{"lib/systemd/system/" + unit: "Restart=no\n", "etc/systemd/system/" + unit: "Restart=always\n"}, 1, cgroup, unix.SIGTERM, ""},
		"cgroup v1":             {map[string]string{"lib/systemd/system/" + unit: "Restart=on-abnormal\n"}, 1, "2:cpu:/\n1:name=systemd:/system.slice/" + unit + "\n", unix.SIGKILL, ""},
		"another waits for it":  {map[string]string{"lib/systemd/system/" + unit: "Restart=no\n"}, 17, cgroup, unix.SIGTERM, ""},
		"no unit":               {nil, 1, "0::/\n", unix.SIGTERM, ""},
		"a unit without a file": {nil, 1, cgroup, unix.SIGTERM, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for p, text := range tt.files {
				p = filepath.Join(root, p)
				if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			files, err := tree.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			defer files.Close()
			got, err := ending(files, process{parent: tt.parent, cgroup: []byte(tt.cgroup)})
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, %v; want %v, error with %q", got, err, tt.want, tt.err)
			}
		})
	}
}
