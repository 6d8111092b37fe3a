//go:build !wasip1

package host

import (
	"errors"
	"strings"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// The proxy is the SDK's emulator, for tests. What each function is for is said where it has
// the real one, in host_wasip1.go.

func LogError(text string)   { proxywasm.LogError(text) }
func LogWarning(text string) { proxywasm.LogWarn(text) }

var began = time.Now()

func Clock() time.Duration { return time.Since(began) }

func PluginConfiguration() ([]byte, error) { return proxywasm.GetPluginConfiguration() }

func Property(path string) (value string, ok bool) {
	b, err := proxywasm.GetProperty(strings.Split(path, "\x00"))
	return string(b), err == nil
}

func ResponseHeader(name string) (value string, ok bool) {
	value, err := proxywasm.GetHttpResponseHeader(name)
	return value, err == nil
}

func SetRequestHeader(name, value string) error {
	return proxywasm.ReplaceHttpRequestHeader(name, value)
}

func GetShared(key string) (value []byte, cas uint32) {
	value, cas, err := proxywasm.GetSharedData(key)
	if err != nil {
		return nil, 0
	}
	return value, cas
}

func SetShared(key string, value []byte, cas uint32) error {
	err := proxywasm.SetSharedData(key, value, cas)
	if errors.Is(err, types.ErrorStatusCasMismatch) {
		return ErrChanged
	}
	return err
}

type Counter struct{ Name string }

func (c *Counter) Add() { proxywasm.DefineCounterMetric(c.Name).Increment(1) }
