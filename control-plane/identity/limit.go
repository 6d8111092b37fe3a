package identity

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// A daemon comes twice a day. After a start it may have to come again a few times.
	callsBurst = 10
	callsEvery = time.Second
	// callersMost bounds the addresses that are remembered. Each costs about 200 bytes,
	// and those that have not come for callsBurst seconds are forgotten when room is
	// needed.
	callersMost = 8192
	// reviewsMost bounds the questions to the API server that are open at a time.
	reviewsMost = 16
)

// limiter bounds the calls of each address.
type limiter struct {
	mu      sync.Mutex
	callers map[netip.Addr]*rate.Limiter
}

// allow reports whether the address may call now.
func (l *limiter) allow(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	caller, known := l.callers[from]
	if !known {
		if len(l.callers) >= callersMost && !l.forget() {
			return false
		}
		if l.callers == nil {
			l.callers = map[netip.Addr]*rate.Limiter{}
		}
		caller = rate.NewLimiter(rate.Every(callsEvery), callsBurst)
		l.callers[from] = caller
	}
	return caller.Allow()
}

// forget drops the addresses that would be new again, and reports whether there were any.
func (l *limiter) forget() bool {
	before := len(l.callers)
	for from, caller := range l.callers {
		if caller.Tokens() >= callsBurst {
			delete(l.callers, from)
		}
	}
	return len(l.callers) < before
}
