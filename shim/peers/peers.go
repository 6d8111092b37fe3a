// Package peers has the nodes of a site share the objects that they hold. For each object one node is the owner,
// which alone asks the store. The others ask the owner, which hands the object over as it arrives, or refers them
// to nodes that it has handed it to. A node that gets nothing in time asks the store itself.
//
// Nodes talk over the port where daemons hand requests over, by HTTP/2 (ALPN "h2") over mutual TLS;
// shim/nodeapi/PROTOCOL.md describes the conversation.
//
// The asking side is fetch.go and write.go (whom to ask), take.go (what that node sends), ask.go (how), and intake.go (where it goes). The
// answering side is serve.go (who may ask), answer.go (what is sent), and takers.go (who sends it instead). Both have
// question.go, frame.go, and faults.go, which says what a fault of a node costs it.
package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Objects are the node's own. Their methods may be called at the same time.
type Objects interface {
	// Name is how the node names what a namespace asks for. It is a *problem.Problem if the namespace's
	// functions may not have it.
	Name(namespace, store, reference string) (objects.Key, error)
	// Get finds an object as it is now, by the node's own rules of freshness. It asks the store if need be, and
	// never another node. It returns as soon as size and version are known: the bytes may still arrive.
	Get(ctx context.Context, namespace string, k objects.Key) (Copy, error)
	// Held finds a version of an object that the node has, or is getting, for a namespace.
	Held(ctx context.Context, namespace string, k objects.Key, version string) (Copy, bool)
	// Written finds a write that the node has acknowledged and the store does not have yet, and no other one of the object.
	Written(k objects.Key, write string) (Copy, bool)
}

// Copy is an object on the node, which may still arrive. Who has it must close it.
type Copy interface {
	Object() source.Object
	// Block waits until a block is whole, and returns its digest and how many bytes it has. After the last one
	// it is io.EOF. It may be called beside ReadAt, but neither of them beside itself.
	Block(ctx context.Context, i int64) (digest.Sum, int, error)
	io.ReaderAt
	io.Closer
}

// Config is what a node's share in its site is made of.
type Config struct {
	// Node is the node's name.
	Node    string
	Objects Objects // nil: the node has nothing for others
	// Client returns the configuration for one connection to a node at a host.
	Client   func(node, host string) (*tls.Config, error)
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Peers are the other nodes of the site. The methods may be called at the same time.
type Peers struct {
	config  Config
	client  *http.Client
	metrics *metrics
	over    context.Context    // ends with Close
	end     context.CancelFunc // of over
	// late, patience and alive are lateMost, stalledMost and aliveMost; tests have other ones.
	late, patience, alive time.Duration
	// fetching are the objects that are asked for, and writes the pending ones of these. Who waits for a place of the first
	// may need somebody who waits for one of the second, never the other way round. namespaces are those whose questions are
	// being answered.
	fetching, writes, namespaces *fair.Places

	mu      sync.Mutex
	members map[string]string // addresses, by node, this one among them
	nodes   []string          // the members' names; they are not changed, but replaced
	site    string            // the digest of their list
	passes  map[string]string
	keys    []ed25519.PublicKey
	asking  map[string]int       // questions that are being answered, by node
	avoided map[string]time.Time // nodes that are asked nothing until then
	takers  map[held]*takers
}

// held is a version of an object.
type held struct {
	objects.Key
	version string
}

// New returns the peers of a node that knows none yet, and registers the metrics, which
// docs/reference/metrics.md describes.
func New(c Config) *Peers {
	p := &Peers{config: c, metrics: newMetrics(c.Registry), late: lateMost, patience: stalledMost, alive: aliveMost,
		fetching: fair.NewPlaces(fetchesMost), writes: fair.NewPlaces(writesMost), namespaces: fair.NewPlaces(answersMost),
		asking: map[string]int{}, avoided: map[string]time.Time{}, takers: map[held]*takers{}}
	p.client = &http.Client{Transport: p.transport()}
	p.over, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends the answers that are being sent, some of which wait for a store, and the connections that nobody uses.
// It may be called twice.
func (p *Peers) Close() {
	p.end()
	p.client.CloseIdleConnections()
}

// SetSite says who is in the node's site.
func (p *Peers) SetSite(m *nodeapi.Site) {
	members := make(map[string]string, len(m.GetMembers()))
	for _, one := range m.GetMembers() {
		members[one.GetNode()] = one.GetPeerAddress()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members, p.nodes, p.site = members, slices.Collect(maps.Keys(members)), m.GetDigest()
	p.metrics.members.Set(float64(len(members)))
	p.config.Log.Info("the node's site has changed", "members", len(members), "digest", p.site)
}

// SetPasses says what the node shows to get objects.
func (p *Peers) SetPasses(m *nodeapi.Passes) {
	passes := make(map[string]string, len(m.GetPasses()))
	for _, one := range m.GetPasses() {
		passes[one.GetNamespace()] = one.GetToken()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes = passes
}

// Trust says which keys passes are to be signed by. Without any, the node has nothing for others.
func (p *Peers) Trust(keys []ed25519.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// choicesMost is how many nodes may ask the store for an object: the owner, and one more while that is away.
const choicesMost = 2

// choices are those for an object, the owner first.
func (p *Peers) choices(k objects.Key) []string {
	p.mu.Lock()
	nodes := p.nodes
	p.mu.Unlock()
	return rendezvous.Choose(k.Namespace+"\x00"+k.Store+"\x00"+k.Reference, nodes, choicesMost)
}

// pass is what the node shows for a namespace; empty: it may have none of its objects.
func (p *Peers) pass(namespace string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if token := p.passes[namespace]; token != "" {
		return token
	}
	return p.passes[capability.AllNamespaces]
}

// address is where a member is.
func (p *Peers) address(node string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address, known := p.members[node]
	return address, known
}
