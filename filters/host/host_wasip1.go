package host

import (
	"fmt"
	"math"
	"time"
	"unsafe"
)

// These are of the ABI.
const (
	statusOK          = 0
	statusCasMismatch = 8

	levelWarning = 3
	levelError   = 4

	bufferPluginConfiguration = 7
	mapRequestHeaders         = 0
	mapResponseHeaders        = 2
	metricCounter             = 0
)

//go:wasmimport env proxy_log
func proxyLog(level uint32, text *byte, size int32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(buffer uint32, start, most int32, value unsafe.Pointer, size *int32) uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(path *byte, pathSize int32, value unsafe.Pointer, size *int32) uint32

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeaderMapValue(headers uint32, name *byte, nameSize int32, value unsafe.Pointer, size *int32) uint32

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeaderMapValue(headers uint32, name *byte, nameSize int32, value *byte, size int32) uint32

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(key *byte, keySize int32, value unsafe.Pointer, size *int32, cas *uint32) uint32

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(key *byte, keySize int32, value *byte, size int32, cas uint32) uint32

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind uint32, name *byte, nameSize int32, metric *uint32) uint32

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(metric uint32, by int64) uint32

//go:wasmimport wasi_snapshot_preview1 clock_time_get
func clockTimeGet(clock int32, precision uint64, nanoseconds *uint64) uint32

// given is where the proxy says what it gives. It is not on the stack, which may move while the
// proxy has memory allocated for the value.
var given struct {
	value  *byte
	size   int32
	number uint32
	time   uint64
}

func text(s string) (*byte, int32) { return unsafe.StringData(s), int32(len(s)) }

func logText(level uint32, s string) {
	p, n := text(s)
	proxyLog(level, p, n) // there is nobody to tell if that does not work either
}

// LogError logs an error, for which nobody else is told.
func LogError(s string) { logText(levelError, s) }

// LogWarning logs what the filter goes on with.
func LogWarning(s string) { logText(levelWarning, s) }

// monotonic is WASI's clock that never goes back. All workers of a proxy have the same,
// which Go's own time does not show: it begins with each of them anew.
const monotonic = 1

// Clock is the time since some begin, the same in all workers of a proxy.
func Clock() time.Duration {
	clockTimeGet(monotonic, 1, &given.time) // never fails for this clock
	return time.Duration(given.time)
}

// PluginConfiguration is in memory of its own, as all values are that the proxy gives.
func PluginConfiguration() ([]byte, error) {
	if status := proxyGetBufferBytes(bufferPluginConfiguration, 0, math.MaxInt32, unsafe.Pointer(&given.value), &given.size); status != statusOK {
		return nil, statusError(status)
	}
	return unsafe.Slice(given.value, given.size), nil
}

// Property is one of the proxy's, by its path with zeros between.
func Property(path string) (value string, ok bool) {
	p, n := text(path)
	if proxyGetProperty(p, n, unsafe.Pointer(&given.value), &given.size) != statusOK {
		return "", false
	}
	return unsafe.String(given.value, given.size), true
}

// ResponseHeader is a header of the answer.
func ResponseHeader(name string) (value string, ok bool) {
	p, n := text(name)
	if proxyGetHeaderMapValue(mapResponseHeaders, p, n, unsafe.Pointer(&given.value), &given.size) != statusOK {
		return "", false
	}
	return unsafe.String(given.value, given.size), true
}

// SetRequestHeader replaces a header of the request.
func SetRequestHeader(name, value string) error {
	p, n := text(name)
	q, m := text(value)
	return statusError(proxyReplaceHeaderMapValue(mapRequestHeaders, p, n, q, m))
}

// GetShared returns what workers share by a name, and its number; nil and 0 if it is nothing.
func GetShared(key string) (value []byte, cas uint32) {
	p, n := text(key)
	if proxyGetSharedData(p, n, unsafe.Pointer(&given.value), &given.size, &given.number) != statusOK {
		return nil, 0
	}
	return unsafe.Slice(given.value, given.size), given.number
}

// SetShared replaces it if it still has that number, and else returns ErrChanged.
func SetShared(key string, value []byte, cas uint32) error {
	p, n := text(key)
	status := proxySetSharedData(p, n, unsafe.SliceData(value), int32(len(value)), cas)
	if status == statusCasMismatch {
		return ErrChanged
	}
	return statusError(status)
}

// Counter is defined at its first Add, as the proxy keeps each metric until it ends.
type Counter struct {
	Name   string
	metric uint32
	made   bool
}

// Add counts one more.
func (c *Counter) Add() {
	if !c.made {
		p, n := text(c.Name)
		if proxyDefineMetric(metricCounter, p, n, &given.number) != statusOK {
			return
		}
		c.metric, c.made = given.number, true
	}
	proxyIncrementMetric(c.metric, 1) // fails only for one that is not made
}

func statusError(status uint32) error {
	if status == statusOK {
		return nil
	}
	return fmt.Errorf("the proxy answers with status %d", status)
}
