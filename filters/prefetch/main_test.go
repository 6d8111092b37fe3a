package prefetch

import (
	"testing"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filtertest"
)

// filter is the filter as Go and as its module, which is built once.
var filter = filtertest.New(func() types.VMContext { return &VM{} })

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
