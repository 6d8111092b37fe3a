//go:build integration || cluster

package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/headstart-mesh/headstart/shim/install/containerd"
)

const (
	// patience is how long a real process may take for what takes it milliseconds.
	patience   = 60 * time.Second
	pauseImage = "headstart.test/pause:1"
)

// machine is a node's file system of its own, with a containerd that is supervised as by
// systemd: it runs in a mount namespace where /etc/containerd, /opt and /run are the
// machine's, and is started again when it ends.
type machine struct {
	root, shim string
	log        lockedBuffer

	mu     sync.Mutex
	cmd    *exec.Cmd
	stop   bool
	starts int
	done   chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newMachine starts a machine whose containerd, the given program, has a configuration.
// It ends with the test, which fails if anything is left of it.
func newMachine(t *testing.T, program, config string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test starts containers: run it as root")
	}
	root, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{root: root, shim: filepath.Join(t.TempDir(), "shim"), done: make(chan struct{})}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(m.log.String())
			m.sweep()
		}
		m.end()
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"etc/containerd", "opt", "run/containerd"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(m.path("etc/containerd/config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	build(t, "../../cmd/containerd-shim-headstart-v2", m.shim)
	pause := filepath.Join(t.TempDir(), "pause")
	build(t, "./testdata/pause", pause)
	go m.supervise(program)
	m.load(t, pause)
	return m
}

func (m *machine) path(p string) string { return filepath.Join(m.root, p) }

func (m *machine) socket() string { return m.path("run/containerd/containerd.sock") }

// supervise starts containerd until the machine ends.
func (m *machine) supervise(program string) {
	defer close(m.done)
	script := `set -e
mount --make-rprivate /
for d in etc/containerd opt run; do mount --bind "$0/$d" "/$d"; done
exec "$1" --log-level info`
	for {
		m.mu.Lock()
		if m.stop {
			m.mu.Unlock()
			return
		}
		m.cmd = exec.Command("unshare", "-m", "sh", "-c", script, m.root, program)
		m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
		err := m.cmd.Start()
		m.starts++
		m.mu.Unlock()
		if err != nil {
			fmt.Fprintln(&m.log, "starting containerd:", err)
			return
		}
		_ = m.cmd.Wait()
	}
}

// started is how often containerd was.
func (m *machine) started() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

func (m *machine) end() {
	m.mu.Lock()
	m.stop = true
	if m.cmd != nil && m.cmd.Process != nil {
		_ = m.cmd.Process.Kill()
	}
	m.mu.Unlock()
	<-m.done
}

// sweep removes what a failed test has left running.
func (m *machine) sweep() {
	conn, err := grpc.NewClient("unix:"+m.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := runtimeapi.NewRuntimeServiceClient(conn)
	left, _ := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, s := range left.GetItems() {
		_, _ = r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		_, _ = r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
	}
}

// containerd is what is tested.
func (m *machine) containerd() *containerd.Containerd { return containerd.New(m.socket(), patience) }

// load brings the pause image to containerd, and waits until the kubelet's interface
// knows it.
func (m *machine) load(t *testing.T, pause string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+m.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	images := runtimeapi.NewImageServiceClient(conn)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err = images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd does not come up: %v\n%s", err, m.log.String())
		}
	}
	c, err := client.New(m.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	imported, err := c.Import(ctx, archive(t, pause))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.NewImage(c, imported[0]).Unpack(ctx, "overlayfs"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		known, err := images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if len(known.GetImages()) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd knows the images %v, %v", known, err)
		}
	}
}

// inHost is the node's network, which needs no plugin.
var inHost = &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}

func podOf(handler string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: handler},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: inHost}},
	}
}

// sandbox runs a pod's sandbox by a runtime handler and returns its id.
func (m *machine) sandbox(t *testing.T, handler string) string {
	t.Helper()
	var id string
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		ran, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{RuntimeHandler: handler, Config: podOf(handler)})
		id = ran.GetPodSandboxId()
		return err
	})
	return id
}

// container runs a container in a sandbox and returns its id.
func (m *machine) container(t *testing.T, sandbox, handler, name string) string {
	t.Helper()
	var id string
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		made, err := r.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: podOf(handler), Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: pauseImage},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: inHost}}}})
		if err != nil {
			return err
		}
		id = made.GetContainerId()
		_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
		return err
	})
	return id
}

// kill ends a container.
func (m *machine) kill(t *testing.T, id string) {
	t.Helper()
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		_, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id})
		return err
	})
}

// running tells whether a container runs.
func (m *machine) running(t *testing.T, id string) bool {
	t.Helper()
	var state runtimeapi.ContainerState
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		got, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		state = got.GetStatus().GetState()
		return err
	})
	return state == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// ready tells whether a sandbox runs.
func (m *machine) ready(t *testing.T, id string) bool {
	t.Helper()
	var state runtimeapi.PodSandboxState
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		got, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		state = got.GetStatus().GetState()
		return err
	})
	return state == runtimeapi.PodSandboxState_SANDBOX_READY
}

func (m *machine) remove(t *testing.T, id string) {
	t.Helper()
	m.cri(t, func(r runtimeapi.RuntimeServiceClient) error {
		_, stopped := r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		_, removed := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return errors.Join(stopped, removed)
	})
}

func (m *machine) cri(t *testing.T, do func(runtimeapi.RuntimeServiceClient) error) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+m.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := do(runtimeapi.NewRuntimeServiceClient(conn)); err != nil {
		t.Fatalf("%v\n%s", err, m.log.String())
	}
}

// build makes a static program.
func build(t *testing.T, pkg, to string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
}

// archive is an image of one program, as `docker save` writes it.
func archive(t *testing.T, program string) *bytes.Buffer {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer := pack(t, map[string][]byte{"pause": data})
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	return pack(t, map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer.Bytes()})
}

func pack(t *testing.T, files map[string][]byte) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
