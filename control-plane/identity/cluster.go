package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ServiceAccount is the daemons' service account, in the control plane's namespace.
const ServiceAccount = "headstart-node"

// What the API server says of a token that is bound to a pod (Kubernetes 1.30 and
// later; pkg/serviceaccount and apiserver's authentication/serviceaccount).
const (
	extraNode    = "authentication.kubernetes.io/node-name"
	extraPod     = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
	userOfTokens = "system:serviceaccount:"
)

// Pod is where a daemon runs, as the API server vouches for it.
type Pod struct{ Namespace, Name, UID, Node string }

// Errors of a Cluster that are the caller's fault.
var (
	// ErrToken says that a token is not valid, or not for Headstart.
	ErrToken = errors.New("the token is not valid")
	// ErrNotDaemon says that a token is somebody else's than a daemon's.
	ErrNotDaemon = errors.New("the token is not of a node's daemon")
	// ErrNoNode says that a token is not bound to a pod on a node.
	ErrNoNode = errors.New("the token does not say on which node its pod runs")
)

// Cluster is what knows daemons and their pods.
type Cluster interface {
	// Review returns the pod that a daemon's token is bound to, or ErrToken,
	// ErrNotDaemon, or ErrNoNode.
	Review(ctx context.Context, token string) (Pod, error)
	// PodIPs returns the pod's addresses. None: it has none yet, or is gone.
	PodIPs(ctx context.Context, p Pod) ([]netip.Addr, error)
}

// kubeCluster asks the API server.
type kubeCluster struct {
	client    kubernetes.Interface
	namespace string
}

// NewCluster returns the Cluster behind an API server. It needs create of tokenreviews,
// and get of pods in the namespace, which is the control plane's.
func NewCluster(client kubernetes.Interface, namespace string) Cluster {
	return kubeCluster{client, namespace}
}

// Review implements Cluster.
func (c kubeCluster) Review(ctx context.Context, token string) (Pod, error) {
	review := &authv1.TokenReview{Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	answer, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return Pod{}, fmt.Errorf("asking the API server about a token: %w", err)
	}
	s := answer.Status
	// An authenticator that does not know audiences returns none, and takes any token.
	if !s.Authenticated || !slices.Contains(s.Audiences, Audience) {
		return Pod{}, ErrToken
	}
	if s.User.Username != userOfTokens+c.namespace+":"+ServiceAccount {
		return Pod{}, fmt.Errorf("%w: it is of %s", ErrNotDaemon, s.User.Username)
	}
	p := Pod{Namespace: c.namespace, Name: first(s.User.Extra[extraPod]), UID: first(s.User.Extra[extraPodUID]), Node: first(s.User.Extra[extraNode])}
	if p.Name == "" || p.UID == "" || p.Node == "" {
		return Pod{}, ErrNoNode
	}
	return p, nil
}

// first returns the only value; several would mean that somebody impersonates.
func first(values authv1.ExtraValue) string {
	if len(values) != 1 {
		return ""
	}
	return strings.TrimSpace(values[0])
}

// PodIPs implements Cluster.
func (c kubeCluster) PodIPs(ctx context.Context, p Pod) ([]netip.Addr, error) {
	pod, err := c.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the API server about pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if string(pod.UID) != p.UID || pod.Spec.NodeName != p.Node {
		return nil, nil // another pod of that name
	}
	var ips []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			ips = append(ips, a.Unmap())
		}
	}
	return ips, nil
}
