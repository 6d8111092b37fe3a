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
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
	"github.com/headstart-mesh/headstart/filters/route"
)

// VM is the filter as each of a proxy's workers has it. What it has seen of functions outlives
// their expectations.
type VM struct {
	types.DefaultVMContext
	// before has the requests of functions with inputs.
	before    types.VMContext
	functions map[string]*function // by cluster
	// session: HeaderSession names the endpoint. mesh: there are clusters that are no function's.
	session, mesh bool
	// requests are those under way that the filter has to do with, by what the proxy calls them.
	requests map[uint32]request
	avoided  host.Counter
}

// request is one that has been sent to an endpoint.
type request struct {
	function *function
	sent     route.Sent
	to       string
	index    int // of to, unless the expectations have changed
	at       time.Duration
}

// What is asked of the proxy.
const (
	// clusterProperty is the name of the cluster that the request's route has chosen.
	clusterProperty = "xds\x00cluster_name"
	// upstreamProperty is the endpoint that had the request last.
	upstreamProperty = "upstream\x00address"
	statusHeader     = ":status"
	// functionProperty is there for a function's cluster, in a mesh.
	functionProperty = "xds\x00cluster_metadata\x00filter_metadata\x00" +
		filterapi.MetadataNamespace + "\x00" + filterapi.MetadataFunction
	// avoidedMetric counts what docs/reference/metrics.md says of it.
	avoidedMetric = "headstart_route_avoided_total"
)

// New returns a filter that knows no function, and stands behind another one.
func New(before types.VMContext) *VM {
	return &VM{before: before, functions: map[string]*function{}, requests: map[uint32]request{},
		avoided: host.Counter{Name: avoidedMetric}}
}

// Expect takes over expectations, as filterapi.RouteConfig has them. If there is anything wrong with them it takes
// none: the endpoints of before may be others' by now.
func (vm *VM) Expect(text []byte) error {
	config, err := filterapi.ParseRoute(text)
	if err == nil {
		err = vm.use(config)
	}
	if err != nil {
		vm.functions = map[string]*function{}
	}
	return err
}

func (vm *VM) use(config filterapi.RouteConfig) (err error) {
	// All of it is read before any of it counts.
	changed := make(map[string]filterapi.RouteFunction)
	functions := make(map[string]*function, len(config.Lines))
	texts := make(map[string]string, len(config.Lines))
	for _, line := range config.Lines {
		cluster := filterapi.RouteCluster(line)
		if _, twice := functions[cluster]; twice {
			return fmt.Errorf("%.80s: is there twice", cluster)
		}
		f := vm.functions[cluster]
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
	vm.functions, vm.session = functions, config.Session
	return nil
}

// Request names an endpoint, when the request's headers are there. It says whether it has.
func (vm *VM) Request(id uint32) bool {
	cluster, ok := host.Property(clusterProperty)
	if !ok {
		return false // no route has the request
	}
	f := vm.functions[cluster]
	if f == nil {
		return false
	}
	if vm.mesh && !f.is {
		if _, f.is = host.Property(functionProperty); !f.is {
			return false // the daemon has no say in it
		}
	}
	now := host.Clock()
	sent, index, ok := f.begin(now)
	if !ok {
		return false
	}
	to := f.addresses[index]
	vm.requests[id] = request{function: f, sent: sent, to: to, index: index, at: now}
	if err := host.SetRequestHeader(vm.named(to)); err != nil {
		host.LogWarning(fmt.Sprintf("route: %s: naming the endpoint: %v", f.cluster, err))
	}
	return true
}

// named is how the proxy is told of an endpoint.
func (vm *VM) named(endpoint string) (header, value string) {
	if vm.session {
		return filterapi.HeaderSession, base64.StdEncoding.EncodeToString([]byte(endpoint))
	}
	return filterapi.HeaderEndpoint, endpoint
}

// Answer learns from the answer's headers, also from one that the proxy gives itself.
func (vm *VM) Answer(id uint32) {
	r, ok := vm.requests[id]
	if !ok {
		return
	}
	f, now := r.function, host.Clock()
	status, ok := host.ResponseHeader(statusHeader)
	answered, erred := ok && !isGatewayError(status), isError(status)
	if !answered || !f.trusted(r.index, r.to, now) {
		address, ok := host.Property(upstreamProperty)
		if ok && address != r.to {
			// It is gone, or could not be reached.
			f.avoid(r.to, now, missed(now-r.at))
			vm.avoided.Add()
			return
		}
		if ok {
			f.trust(r.index, r.to, now)
		}
	}
	var load *route.Load
	if answered {
		if text, ok := host.ResponseHeader(loadHeader); ok {
			if l, ok := readLoad(text); ok {
				load = &l
			}
		}
		if erred {
			f.table.Erred(r.sent, now, load)
			return
		}
	}
	f.table.Answered(r.sent, now, answered, load)
}

// isGatewayError says whether the function has not answered itself, or is too busy to: Envoy
// counts the same as gateway failures. Its other errors are answers.
func isGatewayError(status string) bool { return status == "502" || status == "503" || status == "504" }

// isError says whether an answer says that the function has failed.
func isError(status string) bool { return len(status) == 3 && status[0] == '5' }

// Over forgets a request: its answer has ended, or the client has left.
func (vm *VM) Over(id uint32) {
	r, ok := vm.requests[id]
	if !ok {
		return
	}
	delete(vm.requests, id)
	r.function.over(r.sent)
}
