package connections

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/session"
)

const (
	// addressesMost is how many addresses of a destination's name are used.
	addressesMost = 16
	// lookTimeout is how long a look waits for a name server: other destinations' news wait for that, too.
	lookTimeout = 2 * time.Second
	// firstWords is how soon a server speaks that speaks before its client. Others that end an idle connection with some
	// words do that later.
	firstWords = 10 * time.Second
	// firstWordsMost is how many connections in a row are lost by that before none is made any more that no program has
	// asked for.
	firstWordsMost = 3
)

// destination is a server of the operator's list, as this node uses it.
type destination struct {
	config  *nodeapi.Destination
	secrets *os.Root // nil: the node has none
	rule    address.Rule
	port    uint16
	tls     *tls.Config     // nil: without
	err     error           // it cannot be used as it is configured
	http    *http.Transport // nil: workflows send it no requests
	denials denials

	// lookUp asks name servers.
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	spoke int // so many connections in a row were lost since the server speaks first
	// at is where the server was found, and when last, and password what its secret held.
	at       map[netip.Addr]time.Time
	password string
	store    *redis.Client // of workflows; nil: none has asked
	gone     bool          // it is on the list no more
	refusal  string        // what the server or a name server has said against it at last; empty: nothing
}

func newDestination(c *nodeapi.Destination, secrets *os.Root) *destination {
	d := &destination{config: c, secrets: secrets, at: map[netip.Addr]time.Time{}, lookUp: net.DefaultResolver.LookupNetIP}
	host, port, err := net.SplitHostPort(c.GetAddress())
	n, invalid := strconv.ParseUint(port, 10, 16)
	if d.err = errors.Join(err, invalid); d.err != nil {
		return d
	}
	d.rule, d.port = address.Rule{Host: host}, uint16(n)
	d.password, _ = d.readPassword() // what is wrong with it, look says
	if a, err := netip.ParseAddr(host); err == nil {
		d.at[a.Unmap()] = time.Now()
	}
	if c.GetTls() == nil {
		d.openHTTP()
		return d
	}
	d.tls = &tls.Config{ServerName: cmp.Or(c.GetTls().GetServerName(), host), MinVersion: tls.VersionTLS12}
	if roots := c.GetTls().GetRoots(); roots != "" {
		d.tls.RootCAs = x509.NewCertPool()
		if !d.tls.RootCAs.AppendCertsFromPEM([]byte(roots)) {
			d.err = errors.New("its TLS roots hold no certificate")
			return d
		}
	}
	d.openHTTP()
	return d
}

// grants tells whether the functions of a namespace may be connected.
func (d *destination) grants(namespace string) bool {
	return len(d.config.GetNamespaces()) == 0 || slices.Contains(d.config.GetNamespaces(), namespace)
}

func (d *destination) onNode() bool { return d.config.GetOrigin() == string(destinations.Node) }

// protocol is what is spoken with the server, with the secret as it is now, and by TLS as is said. encrypted: a driver that asks
// for TLS speaks with the server itself.
func (d *destination) protocol(secured *tls.Config, encrypted bool) (session.Protocol, error) {
	if d.err != nil {
		return nil, d.err
	}
	c := d.config
	password, err := d.readPassword()
	if err != nil {
		return nil, err
	}
	switch c.GetKind() {
	case destinations.KindPostgres:
		return session.Postgres{Name: c.GetName(), User: c.GetUser(), Password: password, Database: c.GetDatabase(), TLS: secured,
			Encrypted: encrypted}, nil
	case destinations.KindRedis:
		return session.Redis{Name: c.GetName(), User: c.GetUser(), Password: password, DB: int(c.GetDb()), TLS: secured}, nil
	case destinations.KindTCP, destinations.KindTLS:
		return session.Raw{TLS: secured}, nil
	}
	return nil, fmt.Errorf("this node does not know the kind %.64q", c.GetKind())
}

// readPassword returns what the destination's secret holds, empty if it needs none.
func (d *destination) readPassword() (string, error) {
	name := d.config.GetSecret()
	if name == "" {
		return "", nil
	}
	if d.secrets == nil {
		return "", fmt.Errorf("secret %q: the node has no secrets", name)
	}
	s, err := secret.Load(d.secrets, name, "password")
	if err != nil {
		return "", err
	}
	return s.Get("password"), nil
}

// find asks the name server where the destination is.
func (d *destination) find(ctx context.Context) ([]netip.AddrPort, error) {
	found, err := d.lookUp(ctx, "ip", d.rule.Host)
	if err != nil {
		return nil, fmt.Errorf("finding its address: %w", err)
	}
	var at []netip.AddrPort
	var refused error
	slices.SortFunc(found, netip.Addr.Compare)
	for _, a := range found[:min(len(found), addressesMost)] {
		if words := d.rule.Problem(a); words != "" {
			refused = errors.New(words)
			continue
		}
		at = append(at, netip.AddrPortFrom(a.Unmap(), d.port))
	}
	if len(at) == 0 {
		return nil, cmp.Or(refused, errors.New("its name has no address"))
	}
	return at, nil
}

// where is where the server was found last.
func (d *destination) where() (all []netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.at {
		all = append(all, netip.AddrPortFrom(a, d.port))
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// dial connects to the first of the destination's addresses that takes it.
func (d *destination) dial(ctx context.Context, to func(ctx context.Context, at netip.AddrPort) (net.Conn, error)) (net.Conn, error) {
	at, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range at {
		var c net.Conn
		if c, err = to(ctx, a); err == nil || ctx.Err() != nil {
			return c, err
		}
	}
	return nil, err
}

// fromNode connects from the node itself.
func fromNode(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", at.String())
}

// note notes what came of using the destination.
func (d *destination) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refusal = ""; err != nil {
		d.refusal = err.Error()
	}
}

// waited notes that a connection was lost to the server's first words, or else has waited. first: it is not worth while any
// more to have one wait.
func (d *destination) waited(lost bool) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.spoke >= firstWordsMost: // until the destination is another one
	case lost:
		d.spoke++
		return d.spoke == firstWordsMost
	default:
		d.spoke = 0
	}
	return false
}

// speaksFirst tells whether the server speaks before its client.
func (d *destination) speaksFirst() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spoke >= firstWordsMost
}

// seen is what came of a look at a destination.
type seen int

// same: all is as before. other: it has further addresses. renewed: an address is no more, or the secret is another one, so
// that connections are of no use that were made before.
const (
	same seen = iota
	other
	renewed
)

// goneAfter is how long an address counts that name servers do not say any more: some say a few of many at a time, in turns.
const goneAfter = 20 * time.Second

// look looks whether the destination has the secret that it had, and, if it is used, where it is. It also returns what is
// wrong with it.
func (d *destination) look(ctx context.Context, used bool) (saw seen, wrong string) {
	if d.err != nil {
		return same, d.err.Error()
	}
	password, err := d.readPassword()
	if err != nil {
		return same, err.Error()
	}
	var found []netip.AddrPort
	if used { // else name servers are left alone
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err = d.find(ctx)
		cancel()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, a := range found {
		if _, known := d.at[a.Addr()]; !known {
			saw = other
		}
		d.at[a.Addr()] = now
	}
	for a, last := range d.at {
		if len(found) > 0 && now.Sub(last) > goneAfter {
			delete(d.at, a)
			saw = renewed
		}
	}
	if password != d.password {
		d.password, saw = password, renewed
	}
	if saw == renewed {
		d.refusal, d.spoke = "", 0 // that was of another address, or of another secret
		d.denials.renew()
	}
	if err != nil {
		return saw, err.Error()
	}
	return saw, d.refusal
}
