package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// controlPlaneName is the control plane's Deployment.
	controlPlaneName = "headstart-controlplane"
	// adminPort is where the control plane serves its admin API, on its pod's loopback.
	adminPort = 9466
)

// cluster is what the flags say of a Kubernetes cluster, in kubectl's words.
type cluster struct {
	kubeconfig, context string
	// namespace is the one whose functions are meant; empty: all.
	namespace string
	// system is Headstart's own namespace.
	system string
}

// flags adds those that kubectl has, too.
func (k *cluster) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "file with the cluster's address and your credentials (default: $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&k.context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVarP(&k.namespace, "namespace", "n", "", "only this namespace (default: all)")
	f.StringVar(&k.system, "headstart-namespace", "headstart-system", "namespace that Headstart is installed in")
}

// clusterFlags are those that ask for a cluster, even if a platform runs on this machine.
var clusterFlags = []string{"kubeconfig", "context", "headstart-namespace"}

// named says whether the command line names a cluster.
func named(cmd *cobra.Command) bool {
	return slices.ContainsFunc(clusterFlags, cmd.Flags().Changed)
}

// config returns how to reach the API server.
func (k *cluster) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	rules.WarnIfAllMissing = false
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context})
	config, err := loader.ClientConfig()
	if err == nil {
		config.UserAgent = "headstart/" + nodeapi.Version
		return config, nil
	}
	raw, rawErr := loader.RawConfig()
	switch {
	case k.kubeconfig != "" && errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("no cluster is known: there is no kubeconfig in %s; name one by --kubeconfig or $KUBECONFIG", strings.Join(places(rules), ", "))
	case rawErr == nil && raw.Contexts[k.contextOf(raw)] == nil:
		return nil, fmt.Errorf("the kubeconfig has no context %q; it has %s", k.contextOf(raw), contexts(raw))
	}
	return nil, fmt.Errorf("reading the kubeconfig: %w", err)
}

func places(rules *clientcmd.ClientConfigLoadingRules) []string {
	if rules.ExplicitPath != "" {
		return []string{rules.ExplicitPath}
	}
	return rules.Precedence
}

func (k *cluster) contextOf(raw clientcmdapi.Config) string {
	if k.context != "" {
		return k.context
	}
	return raw.CurrentContext
}

// contexts lists some for an error message.
func contexts(raw clientcmdapi.Config) string {
	const most = 8
	names := sortedKeys(raw.Contexts)
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// client returns a client of the cluster's control planes.
func (k *cluster) client() (*admin.Client, error) {
	config, err := k.config()
	if err != nil {
		return nil, err
	}
	reader, err := objects.Connect(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	find := func(ctx context.Context) ([]string, error) {
		pods, err := k.controlPlanes(ctx, reader)
		if err != nil {
			return nil, k.explain(config, err)
		}
		return pods, nil
	}
	return admin.NewClientOfAll(find, func(ctx context.Context, pod string) (net.Conn, error) {
		c, err := tunnel.Dial(ctx, config, k.system, pod, adminPort)
		if err != nil {
			return nil, k.explain(config, err)
		}
		return c, nil
	}), nil
}

// controlPlanes are the names of the control plane's pods that are ready.
func (k *cluster) controlPlanes(ctx context.Context, r *objects.Reader) ([]string, error) {
	d, err := objects.Get[appsv1.Deployment](ctx, r, objects.Deployments, k.system, controlPlaneName)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("this cluster has no Headstart in namespace %s: install it (docs/operations/install.md), or name its namespace by --headstart-namespace", k.system)
	}
	if err != nil {
		return nil, err
	}
	pods, err := objects.List[corev1.Pod](
		ctx, r, objects.Pods, k.system, labels.Set(d.Spec.Selector.MatchLabels).String(),
	)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range pods {
		// One that is being replaced goes on for a while, and has what it was told until then: the
		// spans of requests that came just after an update.
		if p.Status.Phase == corev1.PodRunning && ready(p) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the control plane has no pod that is ready; see `kubectl -n %s get pods`, or `headstart check`", k.system)
	}
	return names, nil
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// explain says what to do about an API server that does not answer, or not with what was
// asked for.
func (k *cluster) explain(config *rest.Config, err error) error {
	var call *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not know you: log in anew, or name another user's kubeconfig (%w)", config.Host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not do this on the cluster: %w; you need get of deployments, list of pods and create of pods/portforward in namespace %s", err, k.system)
	case errors.As(err, &call):
		return fmt.Errorf("the API server at %s cannot be reached: %w; is the context right (`kubectl config get-contexts`)?", config.Host, call.Err)
	}
	return err
}

// local says whether a platform runs on this machine, or did not end properly: what is
// to be said about that says its client.
func (c *cli) local() bool {
	_, err := os.Lstat(filepath.Join(c.runDir, "admin.sock"))
	return err == nil || errors.Is(err, os.ErrPermission)
}

// target returns the client of the platform on this machine, or of the cluster if there
// is none or the command line names one.
func (c *cli) target(cmd *cobra.Command) (*admin.Client, error) {
	explicit := cmd.Flags().Changed("run-dir")
	if !named(cmd) && (explicit || c.local() && !c.plugin) {
		return c.client(), nil
	}
	if explicit {
		return nil, errors.New("--run-dir names a platform on this machine, and the other flags a cluster; use one of the two")
	}
	client, err := c.cluster.client()
	if err != nil && !named(cmd) && !c.plugin && c.cluster.unknown() {
		return nil, fmt.Errorf("nothing to ask: no platform runs on this machine (%s), and %w", filepath.Join(c.runDir, "admin.sock"), err)
	}
	return client, err
}

// unknown says whether there is no kubeconfig at all.
func (k *cluster) unknown() bool {
	raw, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	return err == nil && len(raw.Contexts) == 0 && len(raw.Clusters) == 0
}
