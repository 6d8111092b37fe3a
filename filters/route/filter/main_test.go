package filter

import (
	"testing"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filtertest"
	"github.com/headstart-mesh/headstart/filters/prefetch"
)

// filter is the filter as Go and as its module, which is built once.
var filter = filtertest.New(func() types.VMContext { return New(&prefetch.VM{}) })

// The plugin's configurations, with Headstart's own routes and with a mesh's.
const (
	configuration     = `{"version":"v1","hintCluster":"headstart-hints"}`
	meshConfiguration = `{"version":"v1","hintCluster":"headstart-hints","ingressEndpoint":"/run/ingress.sock"}`
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run is filter.Run with a proxy whose daemon has said what to expect.
func run(t *testing.T, expectations string, test func(t *testing.T, p *filtertest.Proxy)) {
	t.Helper()
	filter.Run(t, configuration, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		tell(p, "200", `"1"`, expectations)
		test(t, p)
	})
}

func start(t *testing.T, p *filtertest.Proxy) {
	t.Helper()
	if !p.StartPlugin() {
		t.Fatalf("the plugin refuses its configuration: %v", p.GetErrorLogs())
	}
}

// asked are the questions to the daemon.
func asked(p *filtertest.Proxy) []proxytest.HttpCalloutAttribute {
	return p.GetCalloutAttributesFromContext(proxytest.PluginContextID)
}

// tell has the proxy tick, and the daemon answer.
func tell(p *filtertest.Proxy, status, version, expectations string) {
	p.Tick()
	all := asked(p)
	p.CallOnHttpCallResponse(all[len(all)-1].CalloutID, [][2]string{{":status", status}, {"etag", version}}, nil, []byte(expectations))
}
