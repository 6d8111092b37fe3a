package redis

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// connections is how many a client may have: each stream has one that waits. Few are kept
// for later.
const (
	connections     = 4096
	idleConnections = 8
)

// Server is where streams are, as the operator allows it.
type Server struct {
	// Store is the store's name in messages.
	Store string
	// Address is host:port.
	Address string
	// TLS is spoken with the system's authorities.
	TLS bool
	// Database is the number of the database.
	Database int
	// Credentials is called for each connection, so that a changed secret counts from the
	// next one on; the user may be empty. nil: the server needs none.
	Credentials func(context.Context) (user, password string, err error)
}

// NewClient returns a client of the server, which it does not call yet. It tries nothing
// again by itself: who waits, and how long, is decided above it.
func (s Server) NewClient() *redis.Client {
	o := &redis.Options{Addr: s.Address, DB: s.Database, CredentialsProviderContext: s.Credentials,
		MaxRetries: -1, PoolSize: connections, MaxIdleConns: idleConnections, Protocol: 2, DisableIdentity: true}
	host, _, _ := net.SplitHostPort(s.Address) // what has none cannot be dialled either
	plain := ranged.Dialer(address.Rule{Store: s.Store, Host: host})
	o.Dialer = bound(plain.DialContext)
	if s.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		o.Dialer = bound((&tls.Dialer{NetDialer: plain, Config: o.TLSConfig}).DialContext)
	}
	return redis.NewClient(o)
}
