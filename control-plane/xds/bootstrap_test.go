package xds

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

func example() BootstrapConfig {
	return BootstrapConfig{
		NodeID: "edge", Cluster: "gateways", ControlPlaneAddress: "10.0.0.1:7000", ServerName: "controlplane",
		CertFile: "/pki/edge.pem", KeyFile: "/pki/edge.key.pem", CAFile: "/pki/ca.pem", AdminSocket: "/run/admin.sock",
	}
}

func TestBootstrap(t *testing.T) {
	data, err := Bootstrap(example())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Bootstrap(example()); !bytes.Equal(data, again) {
		t.Error("a second call differs")
	}
	var b bootstrap.Bootstrap
	if err := protojson.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	validate(t, &b)
	if b.GetNode().GetId() != "edge" || b.GetAdmin().GetAddress().GetPipe().GetMode() != 0o600 {
		t.Errorf("node %v, admin %v", b.GetNode(), b.GetAdmin())
	}
	var context tls.UpstreamTlsContext
	cluster := b.GetStaticResources().GetClusters()[0]
	if err := cluster.GetTransportSocket().GetTypedConfig().UnmarshalTo(&context); err != nil {
		t.Fatal(err)
	}
	san := context.GetCommonTlsContext().GetValidationContext().GetMatchTypedSubjectAltNames()
	if context.GetSni() != "controlplane" || len(san) != 1 || san[0].GetMatcher().GetExact() != "controlplane" {
		t.Errorf("the control plane is verified as %v", san)
	}
}

// The relay comes after the control plane, and only if there is one: Envoy refuses a second
// source without its guard.
func TestBootstrapWithARelay(t *testing.T) {
	for _, socket := range []string{"", "/run/gateway.sock"} {
		cfg := example()
		cfg.RelaySocket = socket
		data, err := Bootstrap(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var b bootstrap.Bootstrap
		if err := protojson.Unmarshal(data, &b); err != nil {
			t.Fatal(err)
		}
		validate(t, &b)
		sources := []string{}
		for _, s := range b.GetDynamicResources().GetAdsConfig().GetGrpcServices() {
			sources = append(sources, s.GetEnvoyGrpc().GetClusterName())
		}
		want, guard := []string{"headstart-controlplane"}, false
		if socket != "" {
			want, guard = append(want, "headstart-relay"), true
		}
		fields := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()
		if !slices.Equal(sources, want) || fields["envoy.restart_features.xds_failover_support"].GetBoolValue() != guard {
			t.Errorf("relay %q: sources %q, runtime %v", socket, sources, fields)
		}
	}
}

func TestControlPlaneAddress(t *testing.T) {
	for address, want := range map[string]clusterv3.Cluster_DiscoveryType{
		"10.0.0.1:7000": clusterv3.Cluster_STATIC, "[fd00::1]:7000": clusterv3.Cluster_STATIC, "controlplane.example:7000": clusterv3.Cluster_STRICT_DNS,
	} {
		cfg := example()
		cfg.ControlPlaneAddress = address
		c, err := controlPlaneEndpoint(cfg, &packer{})
		if err != nil || c.GetType() != want {
			t.Errorf("%s: %v, error %v, want %v", address, c.GetType(), err, want)
		}
	}
}

func TestBootstrapRefuses(t *testing.T) {
	for want, edit := range map[string]func(*BootstrapConfig){
		"control plane address: address 10.0.0.1: missing port": func(c *BootstrapConfig) { c.ControlPlaneAddress = "10.0.0.1" },
		`control plane address: port "70000" is not a number`:   func(c *BootstrapConfig) { c.ControlPlaneAddress = "10.0.0.1:70000" },
		`control plane address: port "0" is not a number`:       func(c *BootstrapConfig) { c.ControlPlaneAddress = "10.0.0.1:0" },
		"bootstrap: invalid Bootstrap.StaticResources":          func(c *BootstrapConfig) { c.ControlPlaneAddress = ":7000" },
		"admin socket: path of 108 bytes":                       func(c *BootstrapConfig) { c.AdminSocket = strings.Repeat("x", 108) },
		"relay socket: path of 108 bytes":                       func(c *BootstrapConfig) { c.RelaySocket = strings.Repeat("x", 108) },
		"node id and server name must not be empty":             func(c *BootstrapConfig) { c.NodeID = "" },
	} {
		cfg := example()
		edit(&cfg)
		if _, err := Bootstrap(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
