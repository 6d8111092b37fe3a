// Package filter has a proxy do what package route picks: it names the endpoint of each
// request in a header, which the load balancing policy of the function's cluster reads
// (override_host). That policy takes an endpoint however it fares, so the configuration must
// have only those that are ready; or it says that a filter of the proxy's own reads the name
// (stateful_session), which passes over what is not well. Where one is gone, or is passed over,
// and for whatever the filter cannot do, the cluster's own policy decides by weight.
package filter

import (
	"encoding/base64"
	"fmt"
	"sync"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/route"
)

// VM is the filter as the proxy-wasm SDK takes it. Each of a proxy's workers has one, and
// what it has seen of functions outlives their configuration.
type VM struct {
	types.DefaultVMContext
	functions map[string]*function // by cluster
}

// avoidedMetric counts what docs/reference/metrics.md says of it.
const avoidedMetric = "headstart_route_avoided_total"

// New returns a filter that knows no function.
func New() *VM { return &VM{functions: map[string]*function{}} }

// NewPluginContext makes the context of one plugin configuration.
func (vm *VM) NewPluginContext(uint32) types.PluginContext {
	return &plugin{vm: vm, avoided: sync.OnceValue(func() proxywasm.MetricCounter { return proxywasm.DefineCounterMetric(avoidedMetric) })}
}

type plugin struct {
	types.DefaultPluginContext
	vm *VM
	// functions are those of this configuration.
	functions map[string]*function
	// session: HeaderSession names the endpoint.
	session bool
	// avoided is made when it is first needed: the proxy keeps each that is made for ever.
	avoided func() proxywasm.MetricCounter
}

// OnPluginStart refuses a wrong configuration, so that the proxy keeps its last good one.
func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	if err := p.load(); err != nil {
		proxywasm.LogErrorf("route: plugin configuration: %v", err)
		return types.OnPluginStartStatusFailed
	}
	return types.OnPluginStartStatusOK
}

func (p *plugin) load() error {
	data, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	config, err := filterapi.ParseRoute(data)
	if err != nil {
		return err
	}
	// All of it is read before any of it counts.
	changed := make(map[string]filterapi.RouteFunction)
	functions := make(map[string]*function, len(config.Lines))
	texts := make(map[string]string, len(config.Lines))
	for _, line := range config.Lines {
		cluster := filterapi.RouteCluster(line)
		if _, twice := functions[cluster]; twice {
			return fmt.Errorf("%.80s: is there twice", cluster)
		}
		f := p.vm.functions[cluster]
		if f == nil {
			f = newFunction(cluster)
		}
		if f.line != line {
			if changed[cluster], err = filterapi.ParseRouteFunction(line); err != nil {
				return err
			}
		}
		functions[cluster], texts[cluster] = f, line
	}
	for cluster, said := range changed {
		functions[cluster].set(texts[cluster], said)
	}
	p.functions, p.vm.functions, p.session = functions, functions, config.Session
	return nil
}

// NewHttpContext makes the context of one request.
func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &request{plugin: p} }

// request inherits the callbacks for bodies, which let everything pass unread; the proxy is
// told not even to call them.
type request struct {
	types.DefaultHttpContext
	plugin   *plugin
	function *function // nil: the filter has nothing to do with it
	sent     route.Sent
	to       string
}

var (
	// clusterProperty is the name of the cluster that the request's route has chosen.
	clusterProperty = []string{"xds", "cluster_name"}
	// upstreamProperty is the endpoint that had the request last.
	upstreamProperty = []string{"upstream", "address"}
)

// OnHttpRequestHeaders names an endpoint.
func (r *request) OnHttpRequestHeaders(int, bool) types.Action {
	cluster, err := proxywasm.GetProperty(clusterProperty)
	if err != nil {
		return types.ActionContinue // no route has the request
	}
	f := r.plugin.functions[string(cluster)]
	if f == nil {
		return types.ActionContinue
	}
	sent, to, ok := f.begin(clock())
	if !ok {
		return types.ActionContinue
	}
	r.function, r.sent, r.to = f, sent, to
	header, name := r.plugin.named(to)
	if err := proxywasm.ReplaceHttpRequestHeader(header, name); err != nil {
		proxywasm.LogWarnf("route: %s: naming the endpoint: %v", f.cluster, err)
	}
	return types.ActionContinue
}

// named is how the proxy is told of an endpoint.
func (p *plugin) named(endpoint string) (header, value string) {
	if p.session {
		return filterapi.HeaderSession, base64.StdEncoding.EncodeToString([]byte(endpoint))
	}
	return filterapi.HeaderEndpoint, endpoint
}

// OnHttpResponseHeaders learns from the answer, also from one that the proxy gives itself.
func (r *request) OnHttpResponseHeaders(int, bool) types.Action {
	f := r.function
	if f == nil {
		return types.ActionContinue
	}
	now := clock()
	address, err := proxywasm.GetProperty(upstreamProperty)
	if err == nil && string(address) != r.to {
		// It is gone, or could not be reached.
		f.avoid(r.to, now)
		r.plugin.avoided().Increment(1)
		return types.ActionContinue
	}
	status, err := proxywasm.GetHttpResponseHeader(":status")
	answered := err == nil && !isGatewayError(status)
	var load *route.Load
	if answered {
		if text, err := proxywasm.GetHttpResponseHeader(loadHeader); err == nil {
			load = readLoad(text)
		}
	}
	f.table.Answered(r.sent, now, answered, load)
	return types.ActionContinue
}

// isGatewayError says whether the function has not answered itself, or is too busy to: Envoy
// counts the same as gateway failures. Its other errors are answers.
func isGatewayError(status string) bool { return status == "502" || status == "503" || status == "504" }

// OnHttpStreamDone comes when the answer has ended, or the client has left.
func (r *request) OnHttpStreamDone() {
	if r.function != nil {
		r.function.over(r.sent, clock())
	}
}
