// Package destinations reads the operator's list of the servers that functions may be connected to before they
// start. The list names secrets and never holds one.
package destinations

import (
	"fmt"
	"io"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// maxFile bounds the list, in bytes: nodes are told all of it in one message, of which gRPC takes 4 MiB.
const maxFile = 1 << 20

// The kinds of destinations.
const (
	KindTCP      = "tcp"
	KindTLS      = "tls"
	KindPostgres = "postgres"
	KindRedis    = "redis"
)

// Origin is where connections are made.
type Origin string

// The origins.
const (
	// Sandbox has its network namespace, after that exists.
	Sandbox Origin = "sandbox"
	// Node has the daemon's, before any sandbox exists.
	Node Origin = "node"
)

const (
	// DefaultUnused is a fifth of the connections that PostgreSQL allows by default.
	DefaultUnused = 20
	// MaxUnused is more than one server of PostgreSQL or Redis takes by default.
	MaxUnused = 10_000
)

// Destination is one server that the operator allows.
type Destination struct {
	Name string
	// Kind is one of the kinds.
	Kind string
	// Address is host:port.
	Address string
	Origin  Origin
	// TLS is nil without.
	TLS *TLS
	// User and Database are whom a session is logged in as, and where. Only postgres has a database.
	User, Database string
	// DB is the number of Redis' database.
	DB int
	// Secret is the name of the secret that holds the password; empty: none is needed.
	Secret string
	// Namespaces are those whose functions may be connected; empty: all.
	Namespaces []string
	// Unused is how many unused connections all nodes together may hold; 0 unless the origin is the node.
	Unused int
}

// TLS says how the server's certificate is verified.
type TLS struct {
	// Roots are certificates (PEM); empty: the node's own.
	Roots string
	// ServerName is the name in the certificate; empty: the address's host.
	ServerName string
}

// Grants reports whether the functions of the namespace may be connected.
func (d Destination) Grants(namespace string) bool {
	return len(d.Namespaces) == 0 || slices.Contains(d.Namespaces, namespace)
}

// Message returns the destination as nodes are told of it: the control plane alone counts its unused connections.
func (d Destination) Message() *nodeapi.Destination {
	m := &nodeapi.Destination{Name: d.Name, Kind: d.Kind, Address: d.Address, Origin: string(d.Origin), User: d.User,
		Database: d.Database, Db: int32(d.DB), Secret: d.Secret, Namespaces: d.Namespaces}
	if d.TLS != nil {
		m.Tls = &nodeapi.DestinationTLS{Roots: d.TLS.Roots, ServerName: d.TLS.ServerName}
	}
	return m
}

// Destinations is the list, in the file's order.
type Destinations []Destination

// Get returns the destination of that name.
func (ds Destinations) Get(name string) (Destination, bool) {
	i := slices.IndexFunc(ds, func(d Destination) bool { return d.Name == name })
	if i < 0 {
		return Destination{}, false
	}
	return ds[i], true
}

// Names returns their names, in the file's order.
func (ds Destinations) Names() []string {
	names := make([]string, len(ds))
	for i, d := range ds {
		names[i] = d.Name
	}
	return names
}

// Messages returns all of them as nodes are told of them.
func (ds Destinations) Messages() []*nodeapi.Destination {
	all := make([]*nodeapi.Destination, len(ds))
	for i, d := range ds {
		all[i] = d.Message()
	}
	return all
}

// For returns the destinations that functions of the namespace may be connected to.
func (ds Destinations) For(namespace string) Destinations {
	var granted Destinations
	for _, d := range ds {
		if d.Grants(namespace) {
			granted = append(granted, d)
		}
	}
	return granted
}

// Load reads the list from a file.
func Load(path string, standard Origin) (Destinations, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the list of destinations: %w", err)
	}
	defer f.Close()
	// One byte more than allowed, so that Parse sees the excess.
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the list of destinations: %w", err)
	}
	ds, err := Parse(data, standard)
	if err != nil {
		return nil, fmt.Errorf("list of destinations %s: %w", path, err)
	}
	return ds, nil
}

// Parse reads the list. A destination that names no origin has the standard one. Parse reports all problems together,
// as field.Errors, unless the text is no such YAML at all. An empty list is valid.
func Parse(data []byte, standard Origin) (Destinations, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes; list fewer destinations", maxFile)
	}
	var entries []entry
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, fmt.Errorf("not a list of destinations: %w", err)
	}
	ds := make(Destinations, len(entries))
	for i, e := range entries {
		ds[i] = e.destination(standard)
	}
	if err := validate(entries, ds).Err(); err != nil {
		return nil, err
	}
	return ds, nil
}

// Unseen tells whether the daemon passes on what programs say by connections when it is their turn: nobody sees before what they do. The
// ways are those by which a program gets one.
func Unseen(c *nodeapi.Connections) bool {
	for _, name := range c.GetDestinations() {
		if c.GetKinds()[name] != KindRedis || c.GetBy() == filterapi.ByConnect {
			return false
		}
	}
	return true
}
