// Package gate closes the network of a sandbox: nothing leaves but answers, and what its shim sends for the daemon. What its program does before its turn is then seen by
// nobody else.
package gate

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

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
)

// Close puts the rules into the network namespace at a path, in place of those of before.
func Close(namespace string) error {
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
	for _, rule := range [][]expr.Any{loopback, answers, marked, neighbours(solicitation), neighbours(advertised), refuseTCP, refuse} {
		c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: rule})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("putting rules into the sandbox's network namespace: %w", err)
	}
	return nil
}

var (
	accept = &expr.Verdict{Kind: expr.VerdictAccept}

	// loopback: oifname "lo" accept.
	loopback = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)},
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
	// refuseTCP and refuse have a program know at once.
	refuseTCP = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	}
	refuse = []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
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
