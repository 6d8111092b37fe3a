// Package upstream says for how long gateways believe that an instance is there, embedded ones
// and a mesh's (docs/rationale.md).
package upstream

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ConnectTimeout is as long as the kernel waits for the answer to a SYN before it sends it again;
// retries follow, to other instances if there are.
const ConnectTimeout = time.Second

// MeshConnectTimeout is for mutual TLS: two round trips, of up to half a second each, and what
// the handshake takes a busy node.
const MeshConnectTimeout = 2 * time.Second

// Silence is after what time a connection ends on which the instance's node acknowledges nothing:
// it is gone, or the way there is.
const Silence = 12 * time.Second

// probes is how many of them are not answered then.
const probes = 3

// Connection has connections to instances probed while they are idle, so that a request does not
// wait until its timeout for one that is cut off. What is sent and not acknowledged is not
// probed: there the kernel's own bound holds.
func Connection() *clusterv3.UpstreamConnectionOptions {
	every := wrapperspb.UInt32(uint32(Silence.Seconds()) / (probes + 1)) // the first one is due after as long
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &core.TcpKeepalive{
		KeepaliveTime: every, KeepaliveInterval: every, KeepaliveProbes: wrapperspb.UInt32(probes),
	}}
}
