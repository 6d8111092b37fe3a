package filter

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
)

// NewPluginContext makes the context of one plugin configuration.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext {
	return &plugin{PluginContext: vm.before.NewPluginContext(id), vm: vm}
}

// plugin is around that of the filter before, which has the configuration, and all else that the proxy says.
type plugin struct {
	types.PluginContext
	vm       *VM
	follower *follower
}

// OnPluginStart refuses a configuration that the filter before refuses.
func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	if status := p.PluginContext.OnPluginStart(size); status != types.OnPluginStartStatusOK {
		return status
	}
	data, err := host.PluginConfiguration()
	if err != nil {
		host.LogError("route: reading the plugin configuration: " + err.Error())
		return types.OnPluginStartStatusFailed
	}
	config, err := filterapi.ParseConfig(data)
	if err != nil {
		host.LogError("route: plugin configuration: " + err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.vm.mesh = config.IngressEndpoint != ""
	p.follower = &follower{use: p.vm.Expect, cluster: config.HintCluster}
	p.follower.again(pause)
	return types.OnPluginStartStatusOK
}

func (p *plugin) OnTick() { p.follower.ask(proxywasm.DispatchHttpCall) }

func (p *plugin) OnPluginDone() bool {
	if p.follower != nil {
		p.follower.over = true
		p.follower.again(0) // else the proxy ticks as long as the machine is there
	}
	return p.PluginContext.OnPluginDone()
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext { return &stream{plugin: p, id: id} }

// inputs is what the filter asks of the one before it.
type inputs interface {
	// HasInputs says whether the function has inputs of a request whose headers that filter has seen.
	HasInputs() bool
}

// stream is a request and its answer, of which the filter before sees the request's headers.
type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	id     uint32
}

func (s *stream) OnHttpRequestHeaders(headers int, end bool) types.Action {
	vm := s.plugin.vm
	// Headstart's own routes send what names an input elsewhere, so the filter before has nothing to do for an
	// instance that is picked here, and is not asked: that is an eighth of what a request costs.
	if !vm.mesh && vm.Request(s.id) {
		return types.ActionContinue
	}
	before := s.plugin.PluginContext.NewHttpContext(s.id)
	action := before.OnHttpRequestHeaders(headers, end)
	// A mesh's routes do not. An instance that is picked gets the request as it is, so none is picked for a
	// function with inputs, whatever the daemon expects.
	if of, ok := before.(inputs); vm.mesh && ok && !of.HasInputs() {
		vm.Request(s.id)
	}
	return action
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	s.plugin.vm.Answer(s.id)
	return types.ActionContinue
}

func (s *stream) OnHttpStreamDone() { s.plugin.vm.Over(s.id) }
