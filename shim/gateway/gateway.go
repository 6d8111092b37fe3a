// Package gateway is the configuration of a node's own Envoy, where Headstart brings the gateways
// itself: its bootstrap, and what the node's relay serves it besides endpoints and what to expect
// of them. It is made of the functions alone. A cold function's cluster points to the daemon, a hot
// one's to its ready instances, so a hot request pays nothing for being able to be cold.
package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Names that appear in Envoy's admin interface and statistics. A function's cluster,
// virtual host and endpoints bear the function's own name, which has a slash and so
// never meets one of these.
const (
	listenerName   = "gateway"
	routesName     = "functions"
	ingressCluster = "headstart-ingress"
	hintCluster    = "headstart-hints"
	otlpCluster    = "headstart-otlp"
	relayCluster   = "headstart-relay"
	logCluster     = "headstart-log"
)

// maxSocketPath is the length of a unix socket's path: sockaddr_un.sun_path on Linux
// holds 108 bytes with the final zero (unix(7)).
const maxSocketPath = 107

// maxHosts is the number of authorities of one function.
const maxHosts = 64

// Config is what one node's gateway has of its node.
type Config struct {
	// Node is the node's name, and Envoy's node.id.
	Node string
	// Port is the TCP port of the gateway, on all addresses.
	Port uint32
	// RelaySocket, IngressSocket and HintSocket are the daemon's unix sockets.
	RelaySocket, IngressSocket, HintSocket string
	// AdminSocket is where Envoy's admin interface listens, with mode 0600.
	AdminSocket string
	// Filters is the filters' .wasm file. Empty: a gateway without filters; requests work, inputs are not
	// prefetched, and weights alone say where requests go.
	Filters string
	// OTLPSocket is the unix socket that takes the gateway's spans (OTLP over gRPC).
	// Empty: the gateway makes no spans.
	OTLPSocket string
	// TraceSampling is the percentage of requests that start a trace. A request that
	// arrives with a traceparent follows the decision in it.
	TraceSampling float64
}

// check returns what is wrong with the paths.
func (c Config) check() error {
	err := errors.Join(checkSocket("relay", c.RelaySocket), checkSocket("ingress", c.IngressSocket),
		checkSocket("hint", c.HintSocket), checkSocket("admin", c.AdminSocket))
	if c.OTLPSocket != "" {
		err = errors.Join(err, checkSocket("OTLP", c.OTLPSocket))
	}
	if c.Node == "" {
		err = errors.Join(err, errors.New("the node has no name"))
	}
	return err
}

func checkSocket(what, path string) error {
	if path == "" || len(path) > maxSocketPath {
		return fmt.Errorf("%s socket: path of %d bytes, must be 1 to %d", what, len(path), maxSocketPath)
	}
	return nil
}

// Resources returns all that the gateway needs besides endpoints.
// clusters are the functions that have endpoints, picked those whose endpoint the route filter
// picks. The result does not depend on the order of any of them. Resources refuses what would make
// Envoy reject a whole set of resources, such as two functions with one host: one function's mistake
// must not stop the others' updates.
func (c Config) Resources(
	functions []*nodeapi.Function, clusters []string, picked map[string]bool,
) ([]types.Resource, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	functions = slices.Clone(functions)
	slices.SortFunc(functions, func(a, b *nodeapi.Function) int { return cmp.Compare(a.GetName(), b.GetName()) })
	if err := checkFunctions(functions); err != nil {
		return nil, err
	}
	plugin := filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster}
	config, err := plugin.Marshal()
	if err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	var p packer
	all := []types.Resource{c.listener(&p), c.routes(functions, picked, &p)}
	all = append(all, c.clusters(clusters, &p)...)
	if c.Filters != "" {
		filter, err := module.Filter(c.Filters, config)
		if err != nil {
			return nil, err
		}
		all = append(all, filter)
	}
	if p.err != nil {
		return nil, fmt.Errorf("packing resources: %w", p.err)
	}
	return all, nil
}

// checkFunctions returns the first thing wrong with names, hosts or templates. The functions are sorted.
func checkFunctions(functions []*nodeapi.Function) error {
	owners := make(map[string]string, len(functions))
	for i, f := range functions {
		if err := prefetchOf(f).Validate(); err != nil {
			return fmt.Errorf("functions[%d].%w", i, err)
		}
		if i > 0 && functions[i-1].GetName() == f.GetName() {
			return fmt.Errorf("functions[%d].name: %s is there twice", i, f.GetName())
		}
		if n := len(f.GetHosts()); n == 0 || n > maxHosts {
			return fmt.Errorf("functions[%d].hosts: must be 1 to %d", i, maxHosts)
		}
		for j, h := range f.GetHosts() {
			if !filterapi.IsHost(h) {
				return fmt.Errorf("functions[%d].hosts[%d]: %.260q is not a host name in lower case without a port", i, j, h)
			}
			if owner, taken := owners[h]; taken {
				return fmt.Errorf("functions[%d].hosts[%d]: %s is already a host of %s", i, j, h, owner)
			}
			owners[h] = f.GetName()
		}
	}
	return nil
}

// prefetchOf is what the prefetch filter has to know of a function.
func prefetchOf(f *nodeapi.Function) *filterapi.Function {
	return &filterapi.Function{Name: f.GetName(), Input: f.GetInputTemplate(), Inputs: f.GetInputTemplates()}
}

// packer wraps messages and keeps the first error. Its output is the same for the same
// message, so that an unchanged resource has an unchanged version.
type packer struct{ err error }

func (p *packer) pack(m proto.Message) *anypb.Any {
	var a anypb.Any
	if err := anypb.MarshalFrom(&a, m, proto.MarshalOptions{Deterministic: true}); err != nil && p.err == nil {
		p.err = err
	}
	return &a
}
