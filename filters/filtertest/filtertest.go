// Package filtertest runs each of a filter's test cases twice: on the filter as Go, and
// on the Wasm module that a proxy loads, both in the proxy-wasm SDK's host emulator.
package filtertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// buildTimeout is ten times what a cold build takes on two cores.
const buildTimeout = 5 * time.Minute

// Filter is a filter under test.
type Filter struct {
	vm     func() types.VMContext
	module func() ([]byte, error)
	wasm   func() (proxytest.WasmVMContext, error)
}

// wasmPackage is the main package of the module that has all filters.
const wasmPackage = "github.com/headstart-mesh/headstart/filters/wasm"

// New returns the filter whose Go form is made by vm. The module is built once, when a test first
// needs it.
func New(vm func() types.VMContext) *Filter {
	f := &Filter{vm: vm, module: sync.OnceValues(func() ([]byte, error) { return build(wasmPackage) })}
	f.wasm = sync.OnceValues(func() (proxytest.WasmVMContext, error) {
		module, err := f.module()
		if err != nil {
			return nil, err
		}
		return proxytest.NewWasmVMContext(module)
	})
	return f
}

// Module is the filter's Wasm.
func (f *Filter) Module(tb testing.TB) []byte {
	tb.Helper()
	module, err := f.module()
	if err != nil {
		tb.Fatal(err)
	}
	return module
}

// Run calls test with a proxy that holds the filter as Go, then with one that holds it
// as Wasm. The plugin is not started yet. All cases share one instance of the module,
// as all requests of a proxy's worker do.
func (f *Filter) Run(t *testing.T, config string, test func(t *testing.T, p *Proxy)) {
	t.Helper()
	t.Run("go", func(t *testing.T) { test(t, Start(t, f.vm(), config)) })
	t.Run("wasm", func(t *testing.T) {
		vm, err := f.wasm()
		if err != nil {
			t.Fatal(err)
		}
		test(t, Start(t, vm, config))
	})
}

func build(wasmPackage string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "filtertest")
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", wasmPackage, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // at worst a file stays in the temporary directory
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	module := filepath.Join(dir, "filter.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-o", module, wasmPackage)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", wasmPackage, err, out)
	}
	return os.ReadFile(module)
}

// Proxy is an emulated proxy that holds one filter.
type Proxy struct{ proxytest.HostEmulator }

// Start returns a proxy with the filter vm. The emulator's state is global, so there
// is one proxy at a time; it ends with the test.
func Start(tb testing.TB, vm types.VMContext, config string) *Proxy {
	tb.Helper()
	host, reset := proxytest.NewHostEmulator(proxytest.NewEmulatorOption().WithVMContext(vm).WithPluginConfiguration([]byte(config)))
	tb.Cleanup(reset)
	return &Proxy{host}
}

// Outcome is what a filter did with the headers of a request.
type Outcome struct {
	// Context names the request to the emulator.
	Context uint32
	Action  types.Action
	// Headers are the request's as the filter left them.
	Headers [][2]string
	// Calls are the HTTP requests that the filter made itself.
	Calls []proxytest.HttpCalloutAttribute
	// Reply is the answer that the filter gave, nil if it passed the request on.
	Reply *proxytest.LocalHttpResponse
}

// Request sends a request's headers through the filter. The request stays open.
func (p *Proxy) Request(headers ...[2]string) Outcome {
	id := p.InitializeHttpContext()
	o := Outcome{Context: id, Action: p.CallOnRequestHeaders(id, slices.Clone(headers), false)}
	o.Headers = clone(p.GetCurrentRequestHeaders(id))
	for _, c := range p.GetCalloutAttributesFromContext(id) {
		c.Upstream, c.Headers, c.Trailers = strings.Clone(c.Upstream), clone(c.Headers), clone(c.Trailers)
		o.Calls = append(o.Calls, c)
	}
	if r := p.GetSentLocalResponse(id); r != nil {
		o.Reply = &proxytest.LocalHttpResponse{
			StatusCode: r.StatusCode, Data: slices.Clone(r.Data), Headers: clone(r.Headers), GRPCStatus: r.GRPCStatus,
		}
	}
	return o
}

// clone copies what the emulator only points to: the memory is the module's, which
// writes there again with a later request.
func clone(headers [][2]string) [][2]string {
	out := make([][2]string, len(headers))
	for i, h := range headers {
		out[i] = [2]string{strings.Clone(h[0]), strings.Clone(h[1])}
	}
	return out
}
