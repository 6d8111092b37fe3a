// Package counting is a proxy that counts: it takes requests through a compiled filter, and says
// how often each of them has crossed the border between the proxy and the module. That is what a
// filter costs, besides what it computes.
//
// It keeps to proxy-wasm's ABI 0.2.0 as Envoy does, as far as filters for HTTP headers ask for it;
// what it does not know it answers as not implemented.
package counting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

const (
	abi, wasi = "env", "wasi_snapshot_preview1"
	clockName = "clock_time_get"
	allocate  = "proxy_on_memory_allocate"
	// vmContext is the context that is there from the beginning; configurations and requests
	// have those from first on.
	vmContext, first = 0, 1
	// up is for how long the machine has been there when the module is started.
	up = time.Hour
)

// Exchange is a request and its answer, as the filters before have left them.
type Exchange struct {
	// Properties are by their path, with zeros between.
	Properties        map[string]string
	Request, Response map[string]string
}

// Proxy has one module, which has been told its configuration.
type Proxy struct {
	// Now is the time, which passes only by what its owner adds.
	Now     time.Duration
	runtime wazero.Runtime
	plugin  uint64
	module  api.Module
	host    *host
	next    uint64 // context
}

// Open starts a module with a configuration of its plugin. Close ends it.
func Open(ctx context.Context, module []byte, configuration string) (_ *Proxy, err error) {
	p := &Proxy{Now: up, runtime: wazero.NewRuntime(ctx), next: first,
		host: &host{configuration: configuration, shared: map[string]value{}, crossed: map[string]int{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	compiled, err := p.runtime.CompileModule(ctx, module)
	if err != nil {
		return nil, err
	}
	system := p.runtime.NewHostModuleBuilder(wasi)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(system)
	system.NewFunctionBuilder().WithGoModuleFunction(p.clock(), []api.ValueType{api.ValueTypeI32, api.ValueTypeI64, api.ValueTypeI32},
		[]api.ValueType{api.ValueTypeI32}).Export(clockName)
	if _, err := system.Instantiate(ctx); err != nil {
		return nil, err
	}
	proxy := p.runtime.NewHostModuleBuilder(abi)
	for _, f := range compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); module == abi {
			proxy.NewFunctionBuilder().WithGoModuleFunction(p.host.function(name), f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	if _, err := proxy.Instantiate(ctx); err != nil {
		return nil, err
	}
	if p.module, err = p.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize")); err != nil {
		return nil, err
	}
	p.plugin = p.create(ctx, vmContext)
	if p.call(ctx, "proxy_on_configure", p.plugin, uint64(len(configuration))) != 1 {
		return nil, errors.New("the module refuses its configuration")
	}
	clear(p.host.crossed)
	return p, nil
}

// Answer has the module make its next call, and answers it.
func (p *Proxy) Answer(ctx context.Context, headers [][2]string, body string) error {
	calls := p.host.calls
	p.call(ctx, "proxy_on_tick", p.plugin)
	if p.host.calls == calls {
		return errors.New("the module makes no call")
	}
	p.host.headersOfAnswer, p.host.body = headers, body
	p.call(ctx, "proxy_on_http_call_response", p.plugin, uint64(p.host.calls), uint64(len(headers)), uint64(len(body)), 0)
	clear(p.host.crossed)
	return nil
}

func (p *Proxy) create(ctx context.Context, of uint64) (created uint64) {
	created = p.next
	p.next++
	p.call(ctx, "proxy_on_context_create", created, of)
	return created
}

// Close ends the module.
func (p *Proxy) Close(ctx context.Context) error { return p.runtime.Close(ctx) }

// Crossed is how often the border has been crossed since it was asked last, by what was called:
// what begins with proxy_on_ the proxy has, all else the module.
func (p *Proxy) Crossed() map[string]int {
	defer clear(p.host.crossed)
	return maps.Clone(p.host.crossed)
}

// Begin takes a request's headers through the filter. End has to follow.
func (p *Proxy) Begin(ctx context.Context, e *Exchange) (request uint64) {
	p.host.exchange = e
	request = p.create(ctx, p.plugin)
	p.call(ctx, "proxy_on_request_headers", request, uint64(len(e.Request)), 1)
	return request
}

// End takes the answer's through it, and has the request forgotten.
func (p *Proxy) End(ctx context.Context, request uint64, e *Exchange) {
	p.host.exchange = e
	p.call(ctx, "proxy_on_response_headers", request, uint64(len(e.Response)), 1)
	p.call(ctx, "proxy_on_log", request)
	p.call(ctx, "proxy_on_done", request)
	p.call(ctx, "proxy_on_delete", request)
}

// clock is the system's, which Go's runtime asks, too.
func (p *Proxy) clock() api.GoModuleFunc {
	return func(_ context.Context, module api.Module, stack []uint64) {
		p.host.crossed[clockName]++
		if !module.Memory().WriteUint64Le(uint32(stack[2]), uint64(p.Now)) {
			panic("beyond the module's memory")
		}
		stack[0] = ok
	}
}

// call panics where a proxy would end the module.
func (p *Proxy) call(ctx context.Context, name string, args ...uint64) (result uint64) {
	p.host.crossed[name]++
	results, err := p.module.ExportedFunction(name).Call(ctx, args...)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	if len(results) > 0 {
		return results[0]
	}
	return 0
}
