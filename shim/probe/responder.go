package probe

import (
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// eachMost is how many connections one node may have: its daemon's, its next daemon's,
	// and those that both have not noticed to be dead.
	eachMost = 4
	// allMost is how many all may have together.
	allMost = 4096
	// idleMost is how long a connection stays without a question.
	idleMost = 3 * intervalLongest
	// hurry is the shortest time between two questions on one connection. Nobody asks one
	// peer more than once a second; the rest is what the network crowds together.
	hurry = 50 * time.Millisecond
)

// Responder answers the probes of other daemons.
type Responder struct {
	point func() coordinate.Point

	mu     sync.Mutex
	closed bool
	of     map[string]int
	open   map[*tls.Conn]struct{}
}

// NewResponder returns one that says where the node is.
func NewResponder(point func() coordinate.Point) *Responder {
	return &Responder{point: point, of: map[string]int{}, open: map[*tls.Conn]struct{}{}}
}

// Register has an HTTP server whose TLS configuration is Offer's pass probes to r. When the
// server is shut down, they end.
func (r *Responder) Register(s *http.Server) {
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		Protocol: func(_ *http.Server, c *tls.Conn, _ http.Handler) { r.answer(c) },
	}
	s.RegisterOnShutdown(r.close)
}

func (r *Responder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.open {
		_ = c.NetConn().Close() // of a connection that ends
	}
}

// answer answers until the other side ends the connection, asks too much, or nothing.
func (r *Responder) answer(c *tls.Conn) {
	name, err := peertls.PeerName(c.ConnectionState())
	if err != nil || !r.enter(name, c) {
		return
	}
	defer r.leave(name, c)
	kernel, err := raw(c)
	if err != nil {
		return
	}
	var last time.Time
	for {
		acknowledgeAtOnce(kernel)
		if err := c.SetReadDeadline(time.Now().Add(idleMost)); err != nil {
			return
		}
		var asked [1]byte
		if _, err := c.Read(asked[:]); err != nil || asked[0] != question {
			return
		}
		now := time.Now()
		if now.Sub(last) < hurry {
			return
		}
		last = now
		if err := c.SetWriteDeadline(now.Add(patience)); err != nil {
			return
		}
		if err := writeAnswer(c, r.point()); err != nil {
			return
		}
	}
}

func (r *Responder) enter(name string, c *tls.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.of[name] >= eachMost || len(r.open) >= allMost {
		return false
	}
	r.of[name]++
	r.open[c] = struct{}{}
	return true
}

func (r *Responder) leave(name string, c *tls.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[name]--; r.of[name] == 0 {
		delete(r.of, name)
	}
	delete(r.open, c)
}
