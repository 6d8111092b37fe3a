// Package host has several filters in one of a proxy's virtual machines. They share Go's runtime,
// which is most of what a filter costs a proxy in memory and in time to load.
package host

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// Filter makes the context of one plugin configuration.
type Filter interface {
	NewPluginContext(id uint32) types.PluginContext
}

// rootProperty is the root id of the plugin that is being configured.
var rootProperty = []string{"plugin_root_id"}

// VM is the filters as the SDK takes them.
type VM struct {
	types.DefaultVMContext
	usual  Filter
	byRoot map[string]Filter
}

// New returns a machine with the filters by their plugins' root ids; usual is for all others.
func New(usual Filter, byRoot map[string]Filter) *VM { return &VM{usual: usual, byRoot: byRoot} }

// NewPluginContext makes a context that is a filter's as soon as the proxy says whose.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext { return &plugin{vm: vm, id: id} }

type plugin struct {
	types.DefaultPluginContext
	vm *VM
	id uint32
	of types.PluginContext
}

func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	filter := p.vm.usual
	root, err := proxywasm.GetProperty(rootProperty)
	if err != nil {
		proxywasm.LogWarn("the proxy does not say which filter a plugin is; it is taken for the usual one: " + err.Error())
	}
	if named := p.vm.byRoot[string(root)]; named != nil {
		filter = named
	}
	p.of = filter.NewPluginContext(p.id)
	return p.of.OnPluginStart(size)
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext { return p.of.NewHttpContext(id) }

func (p *plugin) OnPluginDone() bool { return p.of == nil || p.of.OnPluginDone() }
