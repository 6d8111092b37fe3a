package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/headstart-mesh/headstart/e2e/cluster/machine"
)

const (
	// pauseImage is every pod's first container; it comes with the cluster.
	pauseImage = "cluster.test/pause:1"
	// registryPort is the registry's, on this machine's address in the cluster.
	registryPort = 5000
	// Where a node's own programs find what they are to do; the customary places.
	containerdSocket = "/run/containerd/containerd.sock"
	kubeletConfig    = "/etc/kubernetes/kubelet.yaml"
	kubeletClient    = "/etc/kubernetes/kubelet.kubeconfig"
	kubeletCA        = "/etc/kubernetes/pki/ca.crt"
	kubeletCert      = "/etc/kubernetes/pki/kubelet.crt"
	kubeletKey       = "/etc/kubernetes/pki/kubelet.key"
	proxyConfig      = "/etc/kubernetes/kube-proxy.yaml"
	proxyClient      = "/etc/kubernetes/kube-proxy.kubeconfig"
)

// containerdTOML is what an administrator would write, but for the score: without
// CAP_SYS_RESOURCE, which a virtual machine's root may lack, nobody may lower it.
const containerdTOML = `version = 3
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "` + pauseImage + `"

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/containerd/certs.d"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
`

// plugins are the CNI plugins, links into the programs' directory.
var plugins = []string{"bridge", "host-local", "loopback", "portmap"}

// bridgeConf is a node's pod network. Other nodes' pods are reached by routes.
func bridgeConf(pods netip.Prefix) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`, pods)
}

// kubeletYAML allows cgroups of version 1, swap, and a disk that is nearly full. Kubelets before
// Kubernetes 1.31 do not know failCgroupV1, and ignore it.
func kubeletYAML(address, dns netip.Addr, cgroup string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %s}
authorization: {mode: Webhook}
tlsCertFile: %s
tlsPrivateKeyFile: %s
address: %s
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [%s]
resolvConf: /etc/resolv.conf
volumePluginDir: /var/lib/kubelet/plugins_volume
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
`, kubeletCA, kubeletCert, kubeletKey, address, containerdSocket, cgroup, dns)
}

// proxyYAML takes what does not come from the node's own pods for a stranger, whose answers
// must come back through the node: this machine may send requests to services as well.
func proxyYAML(node, mode string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: %s}
hostnameOverride: %s
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, mode, proxyClient, node)
}

// nftablesSince is the first Kubernetes whose kube-proxy has this mode without a feature gate.
var nftablesSince = version.MajorMinor(1, 31)

// proxyMode returns a mode that a kube-proxy has, by what `kube-proxy --version` prints.
func proxyMode(said string) (string, error) {
	v, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(said), "Kubernetes "))
	if err != nil {
		return "", fmt.Errorf("kube-proxy's version: %w", err)
	}
	if v.LessThan(nftablesSince) {
		return "iptables", nil
	}
	return "nftables", nil
}

// corefile serves the cluster's names, and asks this machine's resolver for all others.
func corefile(address netip.Addr, kubeconfig string) string {
	return fmt.Sprintf(`.:53 {
  bind %s
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig %s
    ttl 5
  }
  cache 5
  forward . /etc/resolv.conf
}
`, address, kubeconfig)
}

// hostsTOML lets containerd talk to the registry without TLS.
func hostsTOML(registry string) string {
	return fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry)
}

// nodeFiles are the files that a node begins with.
func (s *supervisor) nodeFiles(ctx context.Context, n Node) (map[string]machine.File, error) {
	said, err := exec.CommandContext(ctx, s.program("kube-proxy").Path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking kube-proxy for its version: %w", err)
	}
	mode, err := proxyMode(string(said))
	if err != nil {
		return nil, err
	}
	server, err := s.authority.Issue(nodeParty(n))
	if err != nil {
		return nil, err
	}
	client, err := s.authority.Kubeconfig(s.server(), server)
	if err != nil {
		return nil, err
	}
	proxy, err := s.kubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	gateway, registry := s.gateway(), s.registry()
	public := func(content string) machine.File { return machine.File{Content: content} }
	secret := func(content []byte) machine.File { return machine.File{Content: string(content), Mode: 0o600} }
	return map[string]machine.File{
		"/etc/containerd/config.toml":                         public(containerdTOML),
		"/etc/containerd/certs.d/" + registry + "/hosts.toml": public(hostsTOML(registry)),
		"/etc/cni/net.d/10-pods.conflist":                     public(bridgeConf(n.PodSubnet)),
		"/etc/resolv.conf":                                    public(fmt.Sprintf("nameserver %s\n", gateway)),
		"/etc/hostname":                                       public(n.Name + "\n"),
		kubeletConfig:                                         public(kubeletYAML(n.Address, gateway, n.cgroup())),
		kubeletClient:                                         secret(client),
		kubeletCA:                                             public(string(s.authority.PEM)),
		kubeletCert:                                           public(string(server.Cert)),
		kubeletKey:                                            secret(server.Key),
		proxyConfig:                                           public(proxyYAML(n.Name, mode)),
		proxyClient:                                           secret(proxy),
	}, nil
}
