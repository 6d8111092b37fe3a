// Command panics is a filter that panics when a request asks for it. Other requests get
// its name as their input.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() { proxywasm.SetVMContext(&vm{}) }

type vm struct{ types.DefaultVMContext }

func (*vm) NewPluginContext(uint32) types.PluginContext { return &plugin{} }

type plugin struct{ types.DefaultPluginContext }

func (*plugin) NewHttpContext(uint32) types.HttpContext { return &request{} }

type request struct{ types.DefaultHttpContext }

func (*request) OnHttpRequestHeaders(int, bool) types.Action {
	if _, err := proxywasm.GetHttpRequestHeader("x-panic"); err == nil {
		panic("as asked")
	}
	if err := proxywasm.ReplaceHttpRequestHeader("x-headstart-input", "panics.wasm"); err != nil {
		panic(err)
	}
	return types.ActionContinue
}
