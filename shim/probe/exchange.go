package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// Connections asks peers over connections of mutual TLS that stay open: one for each. Its
// methods may be called at the same time, but not for one peer.
type Connections struct {
	// client returns the configuration for a connection to a host.
	client func(host string) (*tls.Config, error)

	mu sync.Mutex
	of map[string]*connection
}

type connection struct {
	*tls.Conn
	address string
	kernel  syscall.RawConn
}

// NewConnections returns none yet; client returns the configuration for one connection to a
// host, as a node's certificate may be renewed between two.
func NewConnections(client func(host string) (*tls.Config, error)) *Connections {
	return &Connections{client: client, of: map[string]*connection{}}
}

// Ask returns the round-trip time to the peer, and where it says that it is. A connection on
// which it fails is closed; the next call makes another one.
func (cs *Connections) Ask(ctx context.Context, peer Peer) (rtt time.Duration, at coordinate.Point, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := cs.to(ctx, peer)
	if err != nil {
		return 0, at, err
	}
	defer func() {
		if err != nil {
			cs.drop(peer.Name, c)
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.NetConn().Close() }) // the exchange fails then
	defer stop()
	before, err := look(c.kernel)
	if err != nil {
		return 0, at, err
	}
	sent := time.Now()
	if _, err = c.Write([]byte{question}); err != nil {
		return 0, at, fmt.Errorf("probing %s: %w", peer.Name, err)
	}
	at, err = readAnswer(c)
	rtt = time.Since(sent)
	if err != nil {
		return 0, at, fmt.Errorf("probing %s: %w", peer.Name, err)
	}
	after, err := look(c.kernel)
	if err != nil {
		return 0, at, err
	}
	if kernel, ok := between(before, after); ok {
		rtt = min(rtt, kernel) // what the kernel saw is a part of what we saw
	}
	return max(rtt, time.Microsecond), at, nil
}

// to returns the peer's connection.
func (cs *Connections) to(ctx context.Context, peer Peer) (*connection, error) {
	cs.mu.Lock()
	c := cs.of[peer.Name]
	cs.mu.Unlock()
	if c != nil {
		if c.address == peer.Address {
			return c, nil
		}
		cs.drop(peer.Name, c)
	}
	c, err := cs.dial(ctx, peer)
	if err != nil {
		return nil, fmt.Errorf("probing %s: %w", peer.Name, err)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.of[peer.Name] = c
	return c, nil
}

// dial connects to the daemon at the peer's address, if it is the peer's and takes probes.
func (cs *Connections) dial(ctx context.Context, peer Peer) (*connection, error) {
	host, _, err := net.SplitHostPort(peer.Address)
	if err != nil {
		return nil, err
	}
	conf, err := cs.client(host)
	if err != nil {
		return nil, err
	}
	conf = conf.Clone()
	conf.NextProtos = []string{Protocol}
	dialed, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", peer.Address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: dialed.(*tls.Conn), address: peer.Address} // as it says
	if err := c.meet(peer); err != nil {
		_ = c.NetConn().Close() // nothing was said on it
		return nil, err
	}
	return c, nil
}

// meet sees who is at the other end.
func (c *connection) meet(peer Peer) (err error) {
	state := c.ConnectionState()
	if state.NegotiatedProtocol != Protocol {
		return errors.New("its daemon takes no probes")
	}
	if name, err := peertls.PeerName(state); err != nil || name != peer.Name {
		return fmt.Errorf("the daemon at %s is %q", peer.Address, name)
	}
	c.kernel, err = raw(c.Conn)
	return err
}

func (cs *Connections) drop(peer string, c *connection) {
	_ = c.NetConn().Close() // what was to be said has been said
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.of[peer] == c {
		delete(cs.of, peer)
	}
}

// Keep closes the connections to all peers but these.
func (cs *Connections) Keep(peers []Peer) {
	kept := make(map[string]bool, len(peers))
	for _, p := range peers {
		kept[p.Name] = true
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for name, c := range cs.of {
		if !kept[name] {
			_ = c.NetConn().Close() // as above
			delete(cs.of, name)
		}
	}
}
