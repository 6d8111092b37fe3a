//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// poll is how often a real process is looked at.
const poll = 20 * time.Millisecond

// hostile is a compromised daemon: it may write below its own directories, as root, and answers
// what it likes.
type hostile struct {
	nodeapi.UnimplementedSandboxesServer
	answers map[string]*nodeapi.DescribeResponse // by the sandbox's id
}

func (d hostile) Describe(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	return d.answers[r.GetSandbox()], nil
}

// mounting describes one mount at the place that the probe looks into.
func mounting(source string, readOnly bool) *nodeapi.DescribeResponse {
	return &nodeapi.DescribeResponse{
		Mounts: []*nodeapi.Mount{{Source: source, Destination: "/headstart/input", ReadOnly: readOnly}},
	}
}

// secret is a file of the node, which no sandbox may see. The directory is named as sandboxes are: a path that ends
// so is no proof.
const secret = "the node's"

// A daemon that is compromised shows no sandbox anything of the node, whatever it answers and
// whatever it makes of its own directories meanwhile. The sandboxes start without.
func TestAttackOfTheDaemonOnTheNodesFiles(t *testing.T) {
	n := newNode(t)
	node := n.path("node") // what is not the daemon's
	own := func(id string) string { return n.path("sandboxes/" + id) }
	sources := map[string]string{
		"root":        "/",
		"etc":         "/etc", // named as the sandbox is
		"named-alike": node + "/named-alike",
		"link":        own("link") + "/input",
		"link-above":  own("link-above") + "/input",
		"climbs":      own("climbs") + "/../../node/climbs",
		"file":        own("file") + "/input",
		"device":      own("device") + "/input",
		"others":      own("victim") + "/input",
		"writable":    own("writable") + "/input",
		"swapped":     own("swapped") + "/input",
		"swapped-own": own("swapped-own") + "/input",
	}
	d := hostile{answers: map[string]*nodeapi.DescribeResponse{}}
	failed := os.MkdirAll(n.path("bin"), 0o755)
	for id, source := range sources {
		for _, dir := range []string{node + "/" + id, node + "/input"} {
			failed = errors.Join(failed, os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/secret", []byte(secret), 0o644))
		}
		failed = errors.Join(failed, os.MkdirAll(own(id), 0o755))
		d.answers[id] = mounting(source, id != "writable")
	}
	failed = errors.Join(failed,
		os.Symlink(node, own("link")+"/input"),
		os.Remove(own("link-above")), os.Symlink(node, own("link-above")),
		os.WriteFile(own("file")+"/input", []byte(secret), 0o644),
		unix.Mknod(own("device")+"/input", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))),
		os.MkdirAll(own("victim")+"/input", 0o755), os.WriteFile(own("victim")+"/input/secret", []byte(secret), 0o644),
		os.Mkdir(own("writable")+"/input", 0o755),
		os.Mkdir(own("swapped")+"/input", 0o755),
		os.Mkdir(own("swapped-own")+"/input", 0o755),
		n.beforeRunc(t, fmt.Sprintf(`case "$*" in
			*swapped-own) mv %[1]s-own %[1]s-aside; ln -s %[2]s %[1]s-own ;;
			*swapped) mv %[1]s/input %[1]s/aside; ln -s %[2]s %[1]s/input ;;
		esac`, own("swapped"), node)),
	)
	if failed != nil {
		t.Fatal(failed)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, d) })
	for id := range sources {
		t.Run(id, func(t *testing.T) {
			s := n.sandbox(t, id)
			defer s.remove(t)
			v := s.view(t)
			if len(v.Files) > 0 {
				t.Errorf("the sandbox sees %q", slices.Collect(maps.Keys(v.Files)))
			}
			if v.Write == "" {
				t.Error("the sandbox writes to the node")
			}
		})
	}
	if left := mounts(t, n.path("state/io.containerd.runtime.v2.task")); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// beforeRunc has a script run before each `runc create`, as an attacker would who knows the moment.
func (n *node) beforeRunc(t *testing.T, script string) error {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	text := "#!/bin/sh\ncase \"$*\" in *\" create \"*)\n" + script + "\nesac\nexec " + runc + " \"$@\"\n"
	return os.WriteFile(n.path("bin/runc"), []byte(text), 0o755)
}

// A directory that a program inherits would be a way out of its root: the daemon hands over none.
func TestAttackOfTheDaemonByDescriptors(t *testing.T) {
	n := newNode(t)
	if err := errors.Join(os.Mkdir(n.path("node"), 0o755), os.WriteFile(n.path("node/secret"), []byte(secret), 0o644)); err != nil {
		t.Fatal(err)
	}
	opens := map[string]string{"directory": n.path("node"), "device": "/dev/null"}
	d := hostile{answers: map[string]*nodeapi.DescribeResponse{}}
	for id := range opens {
		d.answers[id] = &nodeapi.DescribeResponse{Descriptors: []string{"db"}}
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, d) })
	l, err := net.Listen("unix", descriptors.Path(n.path("node.sock")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- descriptors.Serve(ctx, func(container string) ([]*os.File, error) {
			f, err := os.Open(opens[container])
			return []*os.File{f}, err
		}, slog.New(slog.DiscardHandler))(l)
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for id := range opens {
		t.Run(id, func(t *testing.T) {
			s := n.sandbox(t, id)
			defer s.remove(t)
			v := s.view(t)
			if len(v.Inherited) > 0 {
				t.Errorf("the sandbox inherits %v", v.Inherited)
			}
			for _, variable := range v.Env {
				if strings.HasPrefix(variable, "HEADSTART_") {
					t.Errorf("environment has %s", variable)
				}
			}
		})
	}
}

// A shim that is killed while runc mounts leaves nothing that shows a sandbox's directory, and so
// nothing through which containerd would empty it.
func TestKilledShimLeavesNoMounts(t *testing.T) {
	n := newNode(t)
	input := n.path("sandboxes/ours/input")
	if err := errors.Join(os.MkdirAll(input, 0o755), os.WriteFile(input+"/request", []byte("frames"), 0o444),
		os.MkdirAll(n.path("bin"), 0o755), n.beforeRunc(t, "kill -9 $PPID")); err != nil {
		t.Fatal(err)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{ours: mounting(input, true)})
	})
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "test"), patience)
	defer cancel()
	container, err := n.client.NewContainer(ctx, "ours", containerd.WithRuntime(name, nil),
		containerd.WithNewSpec(oci.WithRootFSPath(n.path("none")), oci.WithProcessArgs("/probe")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := container.NewTask(ctx, cio.NullIO); err == nil {
		t.Error("a task without a shim")
	}
	if err := container.Delete(ctx); err != nil {
		t.Error(err)
	}
	bundles := n.path("state/io.containerd.runtime.v2.task/test")
	for {
		left, err := os.ReadDir(bundles)
		if err == nil && len(left) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("containerd keeps %v, %v, with the mounts %v\n%s", left, err, mounts(t, bundles), n.log.String())
		case <-time.After(poll):
		}
	}
	if _, err := os.Stat(input + "/request"); err != nil {
		t.Errorf("the sandbox's input: %v", err)
	}
}
