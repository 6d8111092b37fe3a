package cluster

import (
	"encoding/json"
	"net/netip"
	"testing"

	toml "github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"
)

func TestConfigurationsCanBeRead(t *testing.T) {
	n := Node{Name: "node1", Address: netip.MustParseAddr("10.99.0.11"), PodSubnet: netip.MustParsePrefix("10.99.1.0/24")}
	gateway := netip.MustParseAddr("10.99.0.1")
	for what, content := range map[string]string{
		"kubelet": kubeletYAML(n.Address, gateway, n.cgroup()), "kube-proxy": proxyYAML(n.Name, "nftables"),
	} {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(content), &kind); err != nil || kind.Kind == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, content := range map[string]string{"containerd": containerdTOML, "registry": hostsTOML(Registry)} {
		var all map[string]any
		if err := toml.Unmarshal([]byte(content), &all); err != nil || len(all) == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !json.Valid([]byte(bridgeConf(n.PodSubnet))) {
		t.Error("the pod network's configuration is no JSON")
	}
}

func TestModeOfAKubeProxy(t *testing.T) {
	for said, want := range map[string]string{"Kubernetes v1.30.14\n": "iptables", "Kubernetes v1.31.0\n": "nftables", "Kubernetes v1.36.3\n": "nftables", "": ""} {
		if got, err := proxyMode(said); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", said, got, err)
		}
	}
}

// Installers put their part in a file of its own, as containerd's documentation says.
func TestContainerdTakesDropIns(t *testing.T) {
	var config struct {
		Version int
		Imports []string
	}
	if err := toml.Unmarshal([]byte(containerdTOML), &config); err != nil {
		t.Fatal(err)
	}
	if config.Version != 3 || len(config.Imports) != 1 || config.Imports[0] != "/etc/containerd/conf.d/*.toml" {
		t.Errorf("%+v", config)
	}
}

func TestOneRegistryForAll(t *testing.T) {
	if want := netip.AddrPortFrom(subnet.Addr().Next(), registryPort).String(); Registry != want {
		t.Errorf("%s, but it is served at %s", Registry, want)
	}
	if firstService() != netip.MustParseAddr("10.96.0.1") {
		t.Errorf("the first service has %s", firstService())
	}
}
