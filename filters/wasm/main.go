// The filters as one Wasm module:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o filters.wasm ./filters/wasm
//
// Half of a module is Go's runtime, and a proxy compiles each module that it loads for seconds: so
// there is one, and a plugin says by its root id which of the filters it is.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
	"github.com/headstart-mesh/headstart/filters/prefetch"
	"github.com/headstart-mesh/headstart/filters/route/filter"
)

// The proxy never calls main: it calls the SDK's exported callbacks after init.
func main() {}

func init() {
	// Others call the prefetch filter as they like: Istio's objects name it after themselves.
	proxywasm.SetVMContext(host.New(&prefetch.VM{}, map[string]host.Filter{filterapi.RouteRoot: filter.New()}))
}
