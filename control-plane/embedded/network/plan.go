package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

const (
	// namespaceDir is where ip-netns(8) and CNI tools look for named namespaces.
	namespaceDir = "/run/netns"
	// blockBits: a /24 for the nodes and one for each node's pods, the
	// split that Kubernetes' controller manager makes by default.
	blockBits = 24
	// hostNumber and firstNode are host parts in the nodes' block: .1 is the host's
	// end of the bridge, nodes start at .11, so that both are easy to tell in a log.
	hostNumber = 1
	firstNode  = 11
	// maxNodes is far above what one machine carries and keeps node numbers within
	// the nodes' block.
	maxNodes = 100
)

// validName keeps device names within the kernel's 15 bytes (IFNAMSIZ) with "-100" added, and what
// belongs to one instance apart from all others: a name has no dash, so "<name>-" begins nobody
// else's device or namespace.
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,10}$`)

// CheckName says what is wrong with an instance's name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("network name %q: up to 11 lower case letters and digits, a letter first", name)
	}
	return nil
}

// Config says what network to make.
type Config struct {
	// Name tells this instance's devices and namespaces from others': up to 11 lower
	// case letters and digits, a letter first.
	Name string
	// Nodes are the nodes' names, DNS labels.
	Nodes []string
	// Subnet is the IPv4 network to take addresses from. The zero Prefix is
	// 10.201.0.0/16.
	Subnet netip.Prefix
}

// DefaultSubnet is private (RFC 1918), and not what Docker, Kubernetes distributions
// and home routers take by default.
var DefaultSubnet = netip.MustParsePrefix("10.201.0.0/16")

// Node is one node's place in the network.
type Node struct {
	Name      string
	Namespace string       // path of the network namespace
	Address   netip.Addr   // on the bridge
	PodSubnet netip.Prefix // routed to the node from the host and the other nodes
	HostVeth  string       // the host's end of the node's cable
}

// plan is a network on paper.
type plan struct {
	name    string
	subnet  netip.Prefix
	bridge  string
	gateway netip.Prefix // the host's address on the bridge
	nodes   []Node
}

func newPlan(c Config) (*plan, error) {
	if !c.Subnet.IsValid() {
		c.Subnet = DefaultSubnet
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &plan{name: c.Name, subnet: c.Subnet.Masked(), bridge: deviceName(c.Name, 0)}
	p.gateway = netip.PrefixFrom(p.host(0, hostNumber), blockBits)
	for i, name := range c.Nodes {
		p.nodes = append(p.nodes, Node{
			Name:      name,
			Namespace: filepath.Join(namespaceDir, c.Name+"-"+name),
			Address:   p.host(0, firstNode+i),
			PodSubnet: netip.PrefixFrom(p.host(i+1, 0), blockBits),
			HostVeth:  deviceName(c.Name, i+1),
		})
	}
	return p, nil
}

func (c Config) validate() error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if len(c.Nodes) == 0 || len(c.Nodes) > maxNodes {
		return fmt.Errorf("%d nodes: from 1 to %d are possible", len(c.Nodes), maxNodes)
	}
	seen := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		if !field.IsLabel(n) {
			return fmt.Errorf("node name %q is not a DNS label", n)
		}
		if seen[n] {
			return fmt.Errorf("node name %q is given twice", n)
		}
		seen[n] = true
	}
	if !c.Subnet.Addr().Is4() {
		return errors.New("--subnet is not an IPv4 network")
	}
	if c.Subnet.Bits() > blockBits || 1<<(blockBits-c.Subnet.Bits()) < len(c.Nodes)+1 {
		return fmt.Errorf("--subnet %s is too small: it takes a /%d for the nodes and one for each node's pods",
			c.Subnet, blockBits)
	}
	return nil
}

// host is the address with the given number in a /24 block of the subnet.
func (p *plan) host(block, number int) netip.Addr {
	base := p.subnet.Addr().As4()
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(base[:])+uint32(block<<(32-blockBits)+number))
	return netip.AddrFrom4(a)
}

// bridgeMAC is fixed and locally administered. Left alone, a bridge takes over the
// lowest address of its ports, and peers' ARP entries go stale with each new node.
func (p *plan) bridgeMAC() net.HardwareAddr {
	a := p.gateway.Addr().As4()
	return net.HardwareAddr{0x02, 0, a[0], a[1], a[2], a[3]}
}

// deviceName is the bridge's with 0, and the host's end of a node's cable with the node's number.
func deviceName(name string, number int) string { return name + "-" + strconv.Itoa(number) }

// isDevice tells whether a device on the host is this instance's.
func isDevice(name, device string) bool {
	number, ours := strings.CutPrefix(device, name+"-")
	n, err := strconv.Atoi(number)
	return ours && err == nil && n >= 0 && deviceName(name, n) == device
}
