package filter

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// NewPluginContext makes the context of one plugin configuration.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext { return &plugin{vm: vm, id: id} }

type plugin struct {
	types.DefaultPluginContext
	vm *VM
	id uint32
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	return types.OnPluginStartStatus(p.vm.Configure(p.id))
}

func (p *plugin) OnPluginDone() bool {
	p.vm.End(p.id)
	return true
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext {
	p.vm.Begin(p.id)
	return &stream{vm: p.vm, id: id}
}

// stream is a request and its answer.
type stream struct {
	types.DefaultHttpContext
	vm *VM
	id uint32
}

func (e *stream) OnHttpRequestHeaders(int, bool) types.Action {
	e.vm.Request(e.id)
	return types.ActionContinue
}

func (e *stream) OnHttpResponseHeaders(int, bool) types.Action {
	e.vm.Answer(e.id)
	return types.ActionContinue
}

func (e *stream) OnHttpStreamDone() { e.vm.Over(e.id) }
