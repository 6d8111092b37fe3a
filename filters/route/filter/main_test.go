package filter

import (
	"testing"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filtertest"
)

// filter is the filter as Go and as its module, which is built once.
var filter = filtertest.New(
	func() types.VMContext { return &vmContext{vm: New()} },
	"github.com/headstart-mesh/headstart/filters/route/wasm",
)

// vmContext, pluginContext and httpContext are the filter as the SDK's emulator takes it.
type vmContext struct {
	types.DefaultVMContext
	vm *VM
}

func (c *vmContext) NewPluginContext(id uint32) types.PluginContext {
	return &pluginContext{vm: c.vm, id: id}
}

type pluginContext struct {
	types.DefaultPluginContext
	vm *VM
	id uint32
}

func (c *pluginContext) OnPluginStart(int) types.OnPluginStartStatus {
	return types.OnPluginStartStatus(c.vm.Configure(c.id))
}

func (c *pluginContext) NewHttpContext(id uint32) types.HttpContext {
	c.vm.Begin(c.id)
	return &httpContext{vm: c.vm, id: id}
}

type httpContext struct {
	types.DefaultHttpContext
	vm *VM
	id uint32
}

func (c *httpContext) OnHttpRequestHeaders(int, bool) types.Action {
	c.vm.Request(c.id)
	return types.ActionContinue
}

func (c *httpContext) OnHttpResponseHeaders(int, bool) types.Action {
	c.vm.Answer(c.id)
	return types.ActionContinue
}

func (c *httpContext) OnHttpStreamDone() { c.vm.Over(c.id) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
