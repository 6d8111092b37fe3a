// The route filter as a Wasm module:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o route.wasm ./filters/route/wasm
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/headstart-mesh/headstart/filters/route/filter"
)

// The proxy never calls main: it calls the SDK's exported callbacks after init.
func main() {}

func init() { proxywasm.SetVMContext(filter.New()) }
