// Package gate closes the network of a sandbox: nothing leaves but answers, and what its shim sends for the daemon. What its program does
// before its turn is then seen by nobody else. And nobody else asks the program meanwhile.
package gate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// table is the one with the rules, in the sandbox's network namespace.
const table = "headstart"

// Offsets and values of what the rules look at.
const (
	// replying is the direction of what answers the one who began a connection (IP_CT_DIR_REPLY).
	replying = 1
	// icmpType is where ICMPv6 has its type, in bytes from its header on. Neighbour discovery's are these two (RFC 4861): without
	// them no answer finds its way over IPv6.
	icmpType                 = 0
	solicitation, advertised = 135, 136
	// portAt is where TCP and UDP have the port that a packet is for, in bytes from their header on.
	portAt, portSize = 2, 2
	// sourceAt4 and sourceAt6 are where IP has the sender's address.
	sourceAt4, sourceAt6 = 12, 8
	// discard is a port that nothing is sent to (RFC 863).
	discard = 9
)

// SidecarUser is the user of Istio's sidecars, and sidecarFirst to sidecarLast are the ports that they take for themselves
// (istio.io, "Application requirements").
const (
	SidecarUser               = 1337
	sidecarFirst, sidecarLast = 15000, 15099
)

// Rules are what passes beside answers.
type Rules struct {
	// Port is where the program takes requests: from Callers, and from the node itself.
	Port    uint16
	Callers []netip.Addr
	// Sidecar: the sandbox has a sidecar of Istio's, which may do what it did. The program does not speak to it.
	Sidecar bool
}

// Close puts the rules into the network namespace at a path, in place of those of before.
func Close(namespace string, r Rules) error {
	own, err := hosts(namespace)
	if err != nil {
		return err
	}
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("opening the sandbox's network namespace: %w", err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return fmt.Errorf("asking the kernel for rules of a network namespace: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: table}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	t = c.AddTable(t)
	drop := nftables.ChainPolicyDrop
	out := c.AddChain(&nftables.Chain{Table: t, Name: "output", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput,
		Priority: nftables.ChainPriorityFilter, Policy: &drop})
	in := c.AddChain(&nftables.Chain{Table: t, Name: "input", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter})
	for _, rule := range r.output() {
		c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: rule})
	}
	for _, rule := range r.input(own) {
		c.AddRule(&nftables.Rule{Table: t, Chain: in, Exprs: rule})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("putting rules into the sandbox's network namespace: %w", err)
	}
	return nil
}

// Open takes the rules out of the network namespace at a path.
func Open(namespace string) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("opening the sandbox's network namespace: %w", err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return fmt.Errorf("asking the kernel for rules of a network namespace: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: table}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("taking rules out of the sandbox's network namespace: %w", err)
	}
	return nil
}

// hosts are the node's addresses, as a sandbox sees them.
func hosts(namespace string) (all []netip.Addr, err error) {
	var sandbox []net.Addr
	err = nsthread.Run(namespace, func() (err error) {
		sandbox, err = net.InterfaceAddrs()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking for the sandbox's addresses: %w", err)
	}
	var none error
	for _, a := range sandbox {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(prefix.Addr(), discard))) // sends nothing
		if err != nil {
			none = errors.Join(none, err)
			continue
		}
		all = append(all, c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap())
		_ = c.Close()
	}
	if len(all) == 0 {
		return nil, errors.Join(errors.New("the node has no way to the sandbox"), none)
	}
	return all, nil
}

// output are the rules for what leaves.
func (r Rules) output() [][]expr.Any {
	all := [][]expr.Any{answers, marked}
	if r.Sidecar {
		// What Istio redirects comes to these ports, too.
		all = append(all, ofSidecar, toSidecar(unix.IPPROTO_TCP, reset), toSidecar(unix.IPPROTO_UDP, prohibited))
	}
	return append(all, loopback, neighbours(solicitation), neighbours(advertised), refuseTCP, refuse)
}

// input are the rules for what comes in.
func (r Rules) input(own []netip.Addr) (all [][]expr.Any) {
	for _, from := range append(own, r.Callers...) {
		all = append(all, comesFrom(from))
	}
	return append(all, r.refuseNew())
}

// refuseNew: iifname != "lo" ct state new meta l4proto tcp ct original proto-dst Port reject with tcp reset. Of a connection that a
// sidecar's rules redirect, the port is that before.
func (r Rules) refuseNew() []expr.Any {
	const originally = 0 // IP_CT_DIR_ORIGINAL
	state := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: loopbackName},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(state)), Mask: state, Xor: make([]byte, len(state))},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, len(state))},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1, Direction: originally},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.Port)},
		reset,
	}
}

// comesFrom: ip saddr a accept.
func comesFrom(a netip.Addr) []expr.Any {
	protocol, at := byte(unix.NFPROTO_IPV4), uint32(sourceAt4)
	if a.Is6() {
		protocol, at = unix.NFPROTO_IPV6, sourceAt6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: uint32(len(a.AsSlice()))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
		accept,
	}
}

// toSidecar: meta l4proto p th dport sidecarFirst-sidecarLast reject.
func toSidecar(protocol byte, with *expr.Reject) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: portAt, Len: portSize},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: binaryutil.BigEndian.PutUint16(sidecarFirst),
			ToData: binaryutil.BigEndian.PutUint16(sidecarLast)},
		with,
	}
}

var (
	accept = &expr.Verdict{Kind: expr.VerdictAccept}
	// reset and prohibited have who sends it know at once.
	reset      = &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
	prohibited = &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}

	loopbackName = append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)
	// loopback: oifname "lo" accept.
	loopback = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: loopbackName},
		accept,
	}
	// ofSidecar: meta skuid SidecarUser accept.
	ofSidecar = []expr.Any{
		&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(SidecarUser)},
		accept,
	}
	// answers: ct direction reply accept. Only what comes in begins a connection whose replies go out.
	answers = []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{replying}},
		accept,
	}
	// marked: meta mark Mark accept.
	marked = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(streams.Mark)},
		accept,
	}
	refuseTCP = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		reset,
	}
	refuse = []expr.Any{prohibited}
)

// neighbours: icmpv6 type n accept.
func neighbours(n byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV6}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: icmpType, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{n}},
		accept,
	}
}
