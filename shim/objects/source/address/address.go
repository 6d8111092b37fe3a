// Package address says at which addresses a store may be. A name server answers for a host's name,
// and the operator has listed the name only: the address that is dialled decides, after the name server
// has answered.
package address

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Rule is what the operator's list says of a host.
type Rule struct {
	// Store is the store's name in messages, Host is as the operator has written it.
	Store, Host string
	// Public: a name must not resolve to a private address.
	Public bool
}

// class is a kind of addresses that may be refused.
type class struct {
	prefixes []netip.Prefix
	what     string
	// allow says how the operator allows them; empty: nothing does.
	allow string
}

var (
	// unusable are addresses of the machine's surroundings: a cloud's instance metadata gives
	// credentials to everybody who asks from there.
	unusable = class{prefixes(
		"169.254.0.0/16", "fe80::/10", // link-local (RFC 3927, RFC 4291)
		// other metadata, of AWS, Alibaba, Azure and Oracle:
		"fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
		"0.0.0.0/8", "::/128", // the machine itself, on Linux
		"224.0.0.0/4", "ff00::/8", // multicast
	), "link-local or special", ""}
	loopback = class{prefixes("127.0.0.0/8", "::1/128"), "loopback",
		"the operator's list allows it where it has a loopback address or localhost as the host"}
	// private are those that the Internet does not route (RFC 6890).
	private = class{prefixes(
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
		"192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "64:ff9b:1::/48", "fec0::/10",
	), "private", "the operator's list allows it by http.privateAddresses, or where it has the address as the host"}
	// translated are IPv6 addresses that end with one of IPv4 (RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, p := range all {
		parsed = append(parsed, netip.MustParsePrefix(p))
	}
	return parsed
}

func (c class) has(a netip.Addr) bool {
	return slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Control implements net.Dialer's ControlContext.
func (r Rule) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address to dial: %w", err)
	}
	if words := r.Problem(at.Addr()); words != "" {
		return problem.New(http.StatusBadGateway, problem.ReasonStoreAddressRefused, filterapi.AnnotationStore,
			fmt.Sprintf("store %q: %s", r.Store, words))
	}
	return nil
}

// Problem says why nobody is to connect to an address of the host, empty if nothing is against it.
func (r Rule) Problem(a netip.Addr) string {
	c := r.refuses(a)
	if c == nil {
		return ""
	}
	words := fmt.Sprintf("its host %.253s is at %s, a %s address", r.Host, a, c.what)
	if c.allow != "" {
		words += "; " + c.allow
	}
	return words
}

// refuses returns why an address is refused, nil if it is not.
func (r Rule) refuses(a netip.Addr) *class {
	a = a.Unmap().WithZone("")
	if translated.Contains(a) {
		a = netip.AddrFrom4([4]byte(a.AsSlice()[12:]))
	}
	written, err := netip.ParseAddr(r.Host)
	literal := err == nil
	switch {
	case unusable.has(a):
		return &unusable
	case loopback.has(a) && !(literal && loopback.has(written.Unmap())) && !isLocalhost(r.Host):
		return &loopback
	case private.has(a) && r.Public && !literal:
		return &private
	}
	return nil
}

// isLocalhost tells whether a name is always of a loopback address (RFC 6761, section 6.3).
func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
