// The route filter as a Wasm module:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o route.wasm ./filters/route/wasm
package main

import (
	"unsafe"

	"github.com/headstart-mesh/headstart/filters/route/filter"
)

// The proxy never calls main, but what is exported here.
func main() {}

var vm = filter.New()

// goOn is what callbacks of headers return: the request or its answer goes on.
const goOn = 0

//go:wasmexport proxy_abi_version_0_2_0
func abi() {}

// space is where the proxy puts each value that it gives. The filter has done with one before it
// asks for the next.
var space []byte

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) *byte {
	if uint32(cap(space)) < size {
		space = make([]byte, size)
	}
	return unsafe.SliceData(space)
}

//go:wasmexport proxy_on_vm_start
func start(_, _ uint32) bool { return true }

//go:wasmexport proxy_on_configure
func configure(plugin, _ uint32) bool { return vm.Configure(plugin) }

// What is created is a request of a plugin, or a plugin of nothing.
//
//go:wasmexport proxy_on_context_create
func create(_, of uint32) {
	if of != 0 {
		vm.Begin(of)
	}
}

//go:wasmexport proxy_on_request_headers
func requestHeaders(request, _, _ uint32) uint32 {
	vm.Request(request)
	return goOn
}

//go:wasmexport proxy_on_response_headers
func responseHeaders(request, _, _ uint32) uint32 {
	vm.Answer(request)
	return goOn
}

// A request is over with the first of these two: the latter comes always, the former not from
// a proxy that does not log.
//
//go:wasmexport proxy_on_log
func logged(request uint32) { vm.Over(request) }

//go:wasmexport proxy_on_delete
func deleted(context uint32) {
	vm.Over(context)
	vm.End(context)
}
