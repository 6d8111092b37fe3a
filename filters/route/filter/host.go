//go:build !wasip1

package filter

import (
	"errors"
	"strings"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// The proxy is the SDK's emulator, for tests. What each function is for is said where it has
// the real one, in host_wasip1.go.

func logError(text string)   { proxywasm.LogError(text) }
func logWarning(text string) { proxywasm.LogWarn(text) }

var began = time.Now()

func clock() time.Duration { return time.Since(began) }

func pluginConfiguration() ([]byte, error) { return proxywasm.GetPluginConfiguration() }

func property(path string) (value string, ok bool) {
	b, err := proxywasm.GetProperty(strings.Split(path, "\x00"))
	return string(b), err == nil
}

func responseHeader(name string) (value string, ok bool) {
	value, err := proxywasm.GetHttpResponseHeader(name)
	return value, err == nil
}

func setRequestHeader(name, value string) error {
	return proxywasm.ReplaceHttpRequestHeader(name, value)
}

func getShared(key string) (value []byte, cas uint32) {
	value, cas, err := proxywasm.GetSharedData(key)
	if err != nil {
		return nil, 0
	}
	return value, cas
}

func setShared(key string, value []byte, cas uint32) error {
	err := proxywasm.SetSharedData(key, value, cas)
	if errors.Is(err, types.ErrorStatusCasMismatch) {
		return errChanged
	}
	return err
}

type counter struct{ name string }

func (c *counter) add() { proxywasm.DefineCounterMetric(c.name).Increment(1) }
