package prefetch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
)

const (
	// tellTimeoutMillis bounds how long a message may occupy the proxy. The daemon is on
	// the same machine and answers before it fetches; nobody waits for it.
	tellTimeoutMillis = 1000
	// requestIDBytes is the size of a W3C trace id: no two requests share one.
	requestIDBytes = 16
	// notGRPC tells SendHttpResponse that the reply has no gRPC status.
	notGRPC = -1
)

// VM is the filter as the proxy-wasm SDK takes it.
type VM struct{ types.DefaultVMContext }

// NewPluginContext makes the context of one plugin configuration.
func (*VM) NewPluginContext(uint32) types.PluginContext {
	return &plugin{dispatch: proxywasm.DispatchHttpCall}
}

// dispatcher sends a request of the filter's own, as proxywasm.DispatchHttpCall does.
type dispatcher func(cluster string, headers [][2]string, body []byte, trailers [][2]string, timeoutMillis uint32, answered func(headers, bodySize, trailers int)) (uint32, error)

type plugin struct {
	types.DefaultPluginContext
	dispatch dispatcher
	table    *table
}

// OnPluginStart refuses a wrong configuration, so that the proxy keeps its last good one.
func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	t, err := load()
	if err != nil {
		proxywasm.LogErrorf("prefetch: plugin configuration: %v", err)
		return types.OnPluginStartStatusFailed
	}
	p.table = t
	return types.OnPluginStartStatusOK
}

func load() (*table, error) {
	data, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	c, err := filterapi.ParseConfig(data)
	if err != nil {
		return nil, err
	}
	return newTable(c), nil
}

// NewHttpContext makes the context of one request.
func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &request{plugin: p} }

// request inherits the callbacks for bodies, which let everything pass unread.
type request struct {
	types.DefaultHttpContext
	plugin    *plugin
	hasInputs bool
}

// HasInputs says, once the headers have been here, whether the gateway has inputs of the request's function. It also
// says so of inputs that the filter cannot read, for which the daemon sees to the request.
func (r *request) HasInputs() bool { return r.hasInputs }

// OnHttpRequestHeaders reads one property of a request. It reads the headers only if the function has an
// input.
func (r *request) OnHttpRequestHeaders(int, bool) types.Action {
	fn := r.function()
	if len(fn.inputs) == 0 {
		return types.ActionContinue
	}
	headers, err := proxywasm.GetHttpRequestHeaders()
	if err != nil {
		proxywasm.LogWarnf("prefetch: %s: reading the request's headers: %v", fn.name, err)
		return types.ActionContinue
	}
	d := fn.decide(headers, newRequestID)
	if d.tell != nil {
		r.tell(fn.name, d.tell)
	}
	if d.reply != nil {
		return answer(d.reply)
	}
	r.set(fn.name, d.set...)
	return types.ActionContinue
}

// function finds the function that the request is for by what the proxy has of its cluster or its route:
// a mesh's routes may send any authority to a service, and a function's to another.
func (r *request) function() function {
	text, ok := host.Property(r.plugin.table.property)
	if !ok || text == "" {
		return function{} // most requests of a mesh are for no function
	}
	r.hasInputs = true
	fn, err := r.plugin.table.function(text)
	if err != nil {
		proxywasm.LogWarnf("prefetch: what the gateway has of a function: %v", err)
	}
	return fn
}

func (r *request) set(function string, headers ...[2]string) {
	for _, h := range headers {
		if err := proxywasm.ReplaceHttpRequestHeader(h[0], h[1]); err != nil {
			proxywasm.LogWarnf("prefetch: %s: setting %s: %v", function, h[0], err)
		}
	}
}

// tell sends the daemon a message and goes on. Without a hint the request only loses
// its head start: the daemon learns of the input from the request itself. Without word
// of a refusal the operator misses an event, and the caller nothing.
func (r *request) tell(function string, headers [][2]string) {
	_, err := r.plugin.dispatch(r.plugin.table.hintCluster, headers, nil, nil, tellTimeoutMillis, func(numHeaders, _, _ int) {
		if status := toldStatus(numHeaders); !strings.HasPrefix(status, "2") {
			proxywasm.LogWarnf("prefetch: %s: the daemon answered with status %q", function, status)
		}
	})
	if err != nil {
		proxywasm.LogWarnf("prefetch: %s: telling the daemon in cluster %s: %v", function, r.plugin.table.hintCluster, err)
	}
}

// toldStatus is empty when there was no answer at all.
func toldStatus(numHeaders int) string {
	if numHeaders == 0 {
		return ""
	}
	headers, err := proxywasm.GetHttpCallResponseHeaders()
	if err != nil {
		return ""
	}
	for _, h := range headers {
		if h[0] == ":status" {
			return h[1]
		}
	}
	return ""
}

func answer(p *filterapi.Problem) types.Action {
	err := proxywasm.SendHttpResponse(uint32(p.Status), [][2]string{{"content-type", filterapi.ProblemContentType}}, p.JSON(), notGRPC)
	if err != nil {
		proxywasm.LogErrorf("prefetch: %s: refusing a request: %v", p.Function, err)
		return types.ActionContinue
	}
	return types.ActionPause
}

func newRequestID() string {
	var id [requestIDBytes]byte
	_, _ = rand.Read(id[:]) // never fails, see its documentation
	return hex.EncodeToString(id[:])
}
