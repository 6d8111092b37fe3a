// The filters as one Wasm module:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o filters.wasm ./filters/wasm
//
// Half of a module is Go's runtime, and a proxy compiles each module that it loads for seconds: so
// there is one. The filters are one plugin, too, since no request has work for both.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/headstart-mesh/headstart/filters/prefetch"
	"github.com/headstart-mesh/headstart/filters/route/filter"
)

// The proxy never calls main: it calls the SDK's exported callbacks after init.
func main() {}

func init() { proxywasm.SetVMContext(filter.New(&prefetch.VM{})) }
