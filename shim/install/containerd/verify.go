package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

const (
	// mark is the label of sandboxes that are only there to verify.
	mark      = "headstart.dev/verification"
	namespace = "headstart-system"
	// attempts are made because the kubelet removes sandboxes that it does not know, at
	// any moment.
	attempts = 3
	// verifyTimeout bounds one sandbox, with a pause image to be pulled.
	verifyTimeout = time.Minute
	// cleanTimeout bounds its removal.
	cleanTimeout = 20 * time.Second
	// systemdParent is a slice that every systemd has.
	systemdParent = "system.slice"
)

// Containerd is the containerd that listens on a socket.
type Containerd struct {
	socket string
	// RestartTimeout is how long a restart may take until the next process answers.
	RestartTimeout time.Duration
	// Files are the node's, to see what systemd does when containerd ends; may be nil.
	Files *tree.Tree
}

// New returns the containerd at socket, a path of this container.
func New(socket string, restartTimeout time.Duration) *Containerd {
	return &Containerd{socket: socket, RestartTimeout: restartTimeout}
}

// call calls do with a connection of its own: the one before a restart is of no use.
func (c *Containerd) call(ctx context.Context, do func(context.Context, runtimeapi.RuntimeServiceClient) error) error {
	conn, err := grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, runtimeapi.NewRuntimeServiceClient(conn)), conn.Close())
}

// Verify is install.Runtime's: it runs a sandbox in the node's network, which needs
// neither a network plugin nor an image but the one that every pod has.
func (c *Containerd) Verify(ctx context.Context, systemdCgroup bool) error {
	return c.call(ctx, func(ctx context.Context, r runtimeapi.RuntimeServiceClient) (err error) {
		defer func() {
			// Also what an interrupted verification has left.
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
			defer cancel()
			err = errors.Join(err, sweep(clean, r))
		}()
		for range attempts {
			if err = attempt(ctx, r, systemdCgroup); err == nil || ctx.Err() != nil || errors.Is(err, install.ErrUnknownHandler) {
				break
			}
		}
		return err
	})
}

func attempt(ctx context.Context, r runtimeapi.RuntimeServiceClient, systemdCgroup bool) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	id := strings.ToLower(rand.Text())
	linux := &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}}
	if systemdCgroup {
		linux.CgroupParent = systemdParent
	}
	ran, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{
		RuntimeHandler: layout.Handler,
		Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "headstart-verification", Namespace: namespace, Uid: id},
			Labels:   map[string]string{mark: "true"},
			Linux:    linux,
		},
	})
	if err != nil && strings.Contains(status.Convert(err).Message(), fmt.Sprintf("no runtime for %q is configured", layout.Handler)) {
		return install.ErrUnknownHandler
	}
	if err != nil {
		return fmt.Errorf("%w; look for containerd-shim-headstart-v2 in containerd's log", err)
	}
	got, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ran.GetPodSandboxId()})
	if err != nil {
		return fmt.Errorf("asking for the sandbox: %w", err)
	}
	if s := got.GetStatus().GetState(); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		return fmt.Errorf("the sandbox is %v right after its start", s)
	}
	return nil
}

// sweep removes all sandboxes that were there to verify.
func sweep(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
	list, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{mark: "true"}}})
	if err != nil {
		return fmt.Errorf("listing what verification has left: %w", err)
	}
	for _, s := range list.GetItems() {
		_, stop := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		_, remove := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		if err := errors.Join(stop, remove); err != nil && status.Code(remove) != codes.NotFound {
			return fmt.Errorf("removing the sandbox that verified: %w", err)
		}
	}
	return nil
}

// Sandboxes is install.Runtime's.
func (c *Containerd) Sandboxes(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var pods []string
	err := c.call(ctx, func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		list, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		}})
		for _, s := range list.GetItems() {
			if s.GetRuntimeHandler() == layout.Handler && s.GetLabels()[mark] == "" {
				pods = append(pods, s.GetMetadata().GetNamespace()+"/"+s.GetMetadata().GetName())
			}
		}
		return err
	})
	return pods, err
}
