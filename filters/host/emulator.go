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

// LogError logs an error, for which nobody else is told.
func LogError(text string) { proxywasm.LogError(text) }

// LogWarning logs what the filter goes on with.
func LogWarning(text string) { proxywasm.LogWarn(text) }

var began = time.Now()

// Clock is the time since some begin, the same in all workers of a proxy.
func Clock() time.Duration { return time.Since(began) }

// PluginConfiguration is in memory of its own, as all values are that the proxy gives.
func PluginConfiguration() ([]byte, error) { return proxywasm.GetPluginConfiguration() }

// Property is one of the proxy's, by its path with zeros between.
func Property(path string) (value string, ok bool) {
	b, err := proxywasm.GetProperty(strings.Split(path, "\x00"))
	return string(b), err == nil
}

// ResponseHeader is a header of the answer.
func ResponseHeader(name string) (value string, ok bool) {
	value, err := proxywasm.GetHttpResponseHeader(name)
	return value, err == nil
}

// SetRequestHeader replaces a header of the request.
func SetRequestHeader(name, value string) error {
	return proxywasm.ReplaceHttpRequestHeader(name, value)
}

// GetShared returns what workers share by a name, and its number; nil and 0 if it is nothing.
func GetShared(key string) (value []byte, cas uint32) {
	value, cas, err := proxywasm.GetSharedData(key)
	if err != nil {
		return nil, 0
	}
	return value, cas
}

// SetShared replaces it if it still has that number, and else returns ErrChanged.
func SetShared(key string, value []byte, cas uint32) error {
	err := proxywasm.SetSharedData(key, value, cas)
	if errors.Is(err, types.ErrorStatusCasMismatch) {
		return ErrChanged
	}
	return err
}

// Counter is defined at its first Add, as the proxy keeps each metric until it ends.
type Counter struct{ Name string }

// Add counts one more.
func (c *Counter) Add() { proxywasm.DefineCounterMetric(c.Name).Increment(1) }
