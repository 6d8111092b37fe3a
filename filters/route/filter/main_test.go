package filter

import (
	"testing"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filtertest"
	"github.com/headstart-mesh/headstart/filters/host"
)

// filter is the filter as Go and as its module, which is built once.
var filter = filtertest.New(filterapi.RouteRoot, func() types.VMContext { return host.New(New(), nil) })

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
