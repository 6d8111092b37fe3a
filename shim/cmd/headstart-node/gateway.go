//go:build !kubernetes

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/headstart-mesh/headstart/shim/gateway"
)

// ownGateway is what the node's own Envoy has of the node.
func (c config) ownGateway(node string) gateway.Config {
	own := gateway.Config{Node: node, Port: c.gatewayPort, RelaySocket: c.socket("gateway.sock"),
		IngressSocket: c.socket("ingress.sock"), HintSocket: c.socket("hints.sock"),
		AdminSocket: c.socket("envoy.sock"), Filters: c.filters, TraceSampling: c.traceSampling}
	if socket, isSocket := strings.CutPrefix(c.otlp, "unix:"); isSocket {
		own.OTLPSocket = socket
	}
	return own
}

// writeBootstrap writes what that Envoy is started with.
func writeBootstrap(own gateway.Config, path string) error {
	b, err := own.Bootstrap()
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the gateway's bootstrap: %w", err)
	}
	return nil
}
