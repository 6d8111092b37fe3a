package pool_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/pool"
)

// What one start costs in processor time, with all that follows from it, where many functions share 20 unused connections
// with one destination and 500 programs start in a second.
func BenchmarkStarts(b *testing.B) {
	const allowed = 20
	for _, functions := range []int{200, 1000} {
		b.Run(fmt.Sprint(functions), func(b *testing.B) {
			p, s := rig(0)
			defer p.Close()
			p.Allow("orders", allowed, ever())
			key := func(i int) pool.Key {
				k := of(fmt.Sprint(i))
				k.Namespace = fmt.Sprint(i % 10)
				return k
			}
			for i := range functions {
				p.Take(b.Context(), key(i))
			}
			for !s.has(allowed) {
				runtime.Gosched()
			}
			random := rand.New(rand.NewPCG(1, 1))
			b.ResetTimer()
			before, slowest := processor(b), time.Duration(0)
			for range b.N {
				began := time.Now()
				if c, ok := p.Take(b.Context(), key(random.IntN(functions))); ok {
					_ = c.Close()
				}
				slowest = max(slowest, time.Since(began))
				time.Sleep(2 * time.Millisecond) // programs start at this rate
			}
			b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(slowest.Microseconds()), "slowest-µs")
		})
	}
}

// has tells whether so many connections are open.
func (s *server) has(n int) bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.open) >= n }

// processor is the processor time that the process has had.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
