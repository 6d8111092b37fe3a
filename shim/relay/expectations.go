package relay

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// expectations are what the node's gateways reckon with: the control plane says a line of each
// function, and the gateways get all lines as one, which is the filter's configuration.
type expectations struct {
	*resources
	cfg   Config
	serve func(*core.TypedExtensionConfig, []string) error
	lines map[string]string // by the resource's name; of mu
	// loaded: gateways have been given the filter. It stays when there is nothing to pick any
	// more: to load it takes Envoy seconds, and without a line it does nothing.
	loaded bool
}

// newExpectations has serve take the filter, and the clusters that it is told of.
func newExpectations(
	cfg Config, changed chan struct{}, serve func(*core.TypedExtensionConfig, []string) error,
) *resources {
	e := &expectations{cfg: cfg, serve: serve, lines: map[string]string{}}
	e.resources = newResources(resource.ExtensionConfigType, changed, e.compose)
	// All that a configuration can have: a line is shorter than the resource that it comes in.
	e.most, e.mostBytes = filterapi.MaxFunctions, filterapi.MaxConfigBytes
	e.check = checkLine
	return e.resources
}

// lineOf is a function's line.
func lineOf(r types.Resource) (string, error) {
	c, ok := r.(*core.TypedExtensionConfig)
	if !ok {
		return "", errors.New("is no extension's configuration")
	}
	var line wrapperspb.StringValue
	if err := c.GetTypedConfig().UnmarshalTo(&line); err != nil {
		return "", err
	}
	return line.GetValue(), nil
}

// checkLine refuses what the filter would refuse, and all that comes with it.
func checkLine(r types.Resource) error {
	line, err := lineOf(r)
	if err == nil {
		_, err = filterapi.ParseRouteFunction(line)
	}
	return err
}

// compose makes one configuration of all lines. Of several that are of one cluster, which the
// filter would refuse, the first by name counts.
func (e *expectations) compose(added map[string]*discovery.Resource, removed []string) error {
	for name, res := range added {
		var c core.TypedExtensionConfig
		if err := res.GetResource().UnmarshalTo(&c); err != nil {
			return err
		}
		line, err := lineOf(&c)
		if err != nil {
			return err
		}
		e.lines[name] = line
	}
	for _, name := range removed {
		delete(e.lines, name)
	}
	if e.cfg.RouteFilter.Name == "" || len(e.lines) == 0 && !e.loaded {
		return nil
	}
	// Clusters of a mesh may eject endpoints; those of an own gateway do not.
	config := filterapi.RouteConfig{Session: e.cfg.Gateway == nil}
	var clusters []string
	taken := make(map[string]bool, len(e.lines))
	for _, name := range slices.Sorted(maps.Keys(e.lines)) {
		line := e.lines[name]
		if cluster := filterapi.RouteCluster(line); !taken[cluster] {
			taken[cluster] = true
			config.Lines, clusters = append(config.Lines, line), append(clusters, cluster)
		}
	}
	text, err := config.Marshal()
	if err != nil {
		return fmt.Errorf("the route filter's configuration: %w", err)
	}
	filter, err := e.cfg.RouteFilter.Filter(text)
	if err != nil {
		return err
	}
	e.loaded = true
	e.cfg.Metrics.picked.Set(float64(len(config.Lines)))
	slices.Sort(clusters)
	return e.serve(filter, clusters)
}
