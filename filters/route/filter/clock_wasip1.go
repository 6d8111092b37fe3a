package filter

import "time"

// monotonic is WASI's clock that never goes back. All workers of a proxy have the same,
// which Go's own time does not show: it begins with each of them anew.
const monotonic = 1

//go:wasmimport wasi_snapshot_preview1 clock_time_get
//go:noescape
func clockTimeGet(clock int32, precision uint64, nanoseconds *uint64) uint32

func clock() time.Duration {
	var now uint64
	clockTimeGet(monotonic, 1, &now) // never fails for this clock
	return time.Duration(now)
}
