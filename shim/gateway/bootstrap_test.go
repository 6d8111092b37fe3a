package gateway

import (
	"bytes"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// The gateway has everything from its node's relay.
func TestBootstrap(t *testing.T) {
	data, err := full.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := full.Bootstrap(); !bytes.Equal(data, again) {
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
	sources, clusters := b.GetDynamicResources().GetAdsConfig().GetGrpcServices(), b.GetStaticResources().GetClusters()
	if len(sources) != 1 || len(clusters) != 1 || sources[0].GetEnvoyGrpc().GetClusterName() != clusters[0].GetName() {
		t.Fatalf("sources %v, clusters %v", sources, clusters)
	}
	if at := clusters[0].GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath(); at != full.RelaySocket {
		t.Errorf("it asks %s", at)
	}
}

func TestBootstrapRefuses(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"admin socket: path of 108 bytes": func(c *Config) { c.AdminSocket = strings.Repeat("x", 108) },
		"relay socket: path of 108 bytes": func(c *Config) { c.RelaySocket = strings.Repeat("x", 108) },
		"the node has no name":            func(c *Config) { c.Node = "" },
	} {
		cfg := full
		edit(&cfg)
		if _, err := cfg.Bootstrap(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
