package identity

import (
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

var errRevoked = errors.New("the node's certificate is revoked")

// NodeCredentials are ServerTLS for gRPC, without revoked nodes: they get no connection, and those that they have end when
// they are revoked.
func (a *Authority) NodeCredentials() credentials.TransportCredentials {
	return guarded{credentials.NewTLS(a.ServerTLS()), a}
}

type guarded struct {
	credentials.TransportCredentials
	authority *Authority
}

// ServerHandshake implements credentials.TransportCredentials.
func (g guarded) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	state, _ := info.(credentials.TLSInfo)
	node, err := peertls.PeerName(state.State)
	if err == nil && !g.authority.admit(node, raw) {
		err = errRevoked
	}
	if err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	return leaving{conn, sync.OnceFunc(func() { g.authority.left(node, raw) })}, info, nil
}

// leaving says when it is closed.
type leaving struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c leaving) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// Clone implements credentials.TransportCredentials.
func (g guarded) Clone() credentials.TransportCredentials {
	return guarded{g.TransportCredentials.Clone(), g.authority}
}

// admit notes the connection of a node, unless that is revoked.
func (a *Authority) admit(node string, conn net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.revoked[node] {
		return false
	}
	if a.open[node] == nil {
		a.open[node] = map[net.Conn]bool{}
	}
	a.open[node][conn] = true
	return true
}

func (a *Authority) left(node string, conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.open[node], conn); len(a.open[node]) == 0 {
		delete(a.open, node)
	}
}

// revoke has the certificates of these nodes, and of no others, count no more.
func (a *Authority) revoke(nodes []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked = make(map[string]bool, len(nodes))
	for _, node := range nodes {
		a.revoked[node] = true
		for conn := range a.open[node] {
			_ = conn.Close() // below TLS, which does not wait; gRPC notices, and closes what is above
		}
	}
}

// Revoked says whether the node's certificates count no more.
func (a *Authority) Revoked(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revoked[node]
}
