package s3proxytest

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects/site"
	"github.com/headstart-mesh/headstart/shim/peers"
)

// Site is some nodes that know each other, as the control plane tells them.
type Site struct {
	ca      *peertlstest.Authority
	key     ed25519.PrivateKey
	members []*nodeapi.Neighbour
	names   []string
	nodes   []*peers.Peers
}

// NewSite returns one without nodes.
func NewSite(t testing.TB) *Site {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	return &Site{ca: peertlstest.New(t), key: key}
}

// join has a node be one of the site.
func (s *Site) join(t testing.TB, name string, own *site.Own, stranger bool, log *slog.Logger) *peers.Peers {
	t.Helper()
	server, client := s.ca.Load(t, name, net.IPv4(127, 0, 0, 1))
	near := peers.New(peers.Config{Node: name, Objects: own, Registry: prometheus.NewRegistry(), Log: log,
		Client: func(node, host string) (*tls.Config, error) {
			return peertls.Named(peertls.ClientFor(client, host), node), nil
		}})
	server.NextProtos = []string{"http/1.1", peers.Protocol}
	l, err := serve.TLS("127.0.0.1:0", server)()
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serve.HTTP(ctx, near.Beside(http.NotFoundHandler()), 0, log, peers.Register)(l) }()
	t.Cleanup(func() { near.Close(); stop(); must(t, <-served) })
	s.members = append(s.members, &nodeapi.Neighbour{Node: name, PeerAddress: l.Addr().String()})
	s.names, s.nodes = append(s.names, name), append(s.nodes, near)
	near.Trust([]ed25519.PublicKey{s.key.Public().(ed25519.PublicKey)})
	if !stranger {
		pass := capability.Pass{Node: name, Namespace: capability.AllNamespaces}
		near.SetPasses(&nodeapi.Passes{Passes: []*nodeapi.Pass{{Namespace: capability.AllNamespaces,
			Token: capability.Sign(s.key, pass, time.Now().Add(capability.PassLife))}}})
	}
	for _, n := range s.nodes {
		n.SetSite(&nodeapi.Site{Members: s.members, Digest: strings.Join(s.names, ",")})
	}
	return near
}

// Owner is the node that asks the store for an object of the default store.
func (s *Site) Owner(namespace, key string) string {
	return rendezvous.Choose(namespace+"\x00default\x00s3://"+Bucket+"/"+key, s.names, 1)[0]
}
