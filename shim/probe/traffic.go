package probe

import (
	"crypto/tls"
	"sync"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// lookEvery is how often connections with traffic are looked at.
	lookEvery = time.Second
	// followedMost is how many connections are followed; more between nodes teach nothing.
	followedMost = 256
	// The least time of the last minutes (tcp_min_rtt_wlen) counts while the smoothed one is
	// above it by no more than agreeing of it, or agreeingLeast. Else it may be a queue, a late
	// acknowledgement, which Linux has for up to 40 ms, or a longer way: that is for a probe
	// to find out.
	agreeing      = 0.1
	agreeingLeast = time.Millisecond
)

// Traffic learns round-trip times from connections that others use. Its methods may be called
// at the same time.
type Traffic struct {
	mu   sync.Mutex
	of   map[*tls.Conn]*followed
	next time.Time
}

type followed struct {
	peer   string
	kernel syscall.RawConn
	last   tcp
}

// NewTraffic follows no connection yet.
func NewTraffic() *Traffic { return &Traffic{of: map[*tls.Conn]*followed{}} }

// Opened follows a connection, whose handshake is over, until closed is called.
func (t *Traffic) Opened(c *tls.Conn) (closed func()) {
	peer, err := peertls.PeerName(c.ConnectionState())
	if err != nil {
		return func() {}
	}
	kernel, err := raw(c)
	if err != nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) < followedMost {
		t.of[c] = &followed{peer: peer, kernel: kernel}
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.of, c)
	}
}

// Look tells the plan what connections show on which something was acknowledged since the
// last look.
func (t *Traffic) Look(now time.Time, plan *Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		return
	}
	t.next = now.Add(lookEvery)
	for _, f := range t.of {
		seen, err := look(f.kernel)
		if err != nil || seen.acknowledged == f.last.acknowledged {
			continue // closed just now, or silent
		}
		f.last = seen
		if rtt, ok := seen.agreed(); ok {
			plan.Passed(f.peer, rtt, now)
		}
	}
}

// agreed is the least time, if it is as the smoothed one says still.
func (t tcp) agreed() (rtt time.Duration, ok bool) {
	if t.smoothed == 0 || t.least == 0 || t.least == rttUnknown {
		return 0, false
	}
	return t.least, t.smoothed <= t.least+max(time.Duration(agreeing*float64(t.least)), agreeingLeast)
}
