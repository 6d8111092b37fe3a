package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

var netips = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestAddressesAreEasyToTell(t *testing.T) {
	p, err := newPlan(Config{Name: "headstart", Nodes: []string{"edge", "cloud"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{
		{"edge", "/run/netns/headstart-edge", netip.MustParseAddr("10.201.0.11"), netip.MustParsePrefix("10.201.1.0/24"), "headstart-1"},
		{"cloud", "/run/netns/headstart-cloud", netip.MustParseAddr("10.201.0.12"), netip.MustParsePrefix("10.201.2.0/24"), "headstart-2"},
	}
	if d := cmp.Diff(want, p.nodes, netips); d != "" {
		t.Error(d)
	}
	if p.gateway != netip.MustParsePrefix("10.201.0.1/24") || p.bridge != "headstart-0" {
		t.Errorf("bridge %s has %s", p.bridge, p.gateway)
	}
}

func TestAPlanStaysInItsSubnetAndOverlapsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.Uint32().Draw(t, "address")
		bits := rapid.IntRange(8, 24).Draw(t, "bits")
		addr := netip.AddrFrom4([4]byte{byte(raw >> 24), byte(raw >> 16), byte(raw >> 8), byte(raw)})
		c := Config{
			Name:   rapid.StringMatching(validName.String()).Draw(t, "name"),
			Nodes:  rapid.SliceOfNDistinct(rapid.StringMatching(field.LabelForm), 1, maxNodes, rapid.ID).Draw(t, "nodes"),
			Subnet: netip.PrefixFrom(addr, bits),
		}
		p, err := newPlan(c)
		if err != nil {
			if !strings.Contains(err.Error(), "--subnet") {
				t.Fatal(err)
			}
			return
		}
		seen := map[netip.Addr]bool{p.gateway.Addr(): true}
		for i, n := range p.nodes {
			if seen[n.Address] || !p.gateway.Contains(n.Address) {
				t.Errorf("address %s of node %d", n.Address, i)
			}
			seen[n.Address] = true
			if n.PodSubnet.Overlaps(p.gateway) || !c.Subnet.Contains(n.PodSubnet.Addr()) || n.PodSubnet.Bits() < c.Subnet.Bits() {
				t.Errorf("pods of node %d in %s", i, n.PodSubnet)
			}
			for _, other := range p.nodes[:i] {
				if n.PodSubnet.Overlaps(other.PodSubnet) {
					t.Errorf("%s and %s overlap", n.PodSubnet, other.PodSubnet)
				}
			}
			if len(n.HostVeth) > 15 || !isDevice(c.Name, n.HostVeth) {
				t.Errorf("device %s", n.HostVeth)
			}
		}
		if len(p.bridge) > 15 || !isDevice(c.Name, p.bridge) {
			t.Errorf("bridge %s", p.bridge)
		}
	})
}

// What one instance sweeps must never belong to another.
func TestInstancesCannotBeMistakenForEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A small alphabet, so that names come close to each other.
		name := rapid.StringMatching(`[av][av0-2]{0,5}`)
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		if a == b {
			return
		}
		p, err := newPlan(Config{Name: b, Nodes: []string{"a", "v1", "a-v", "0", "10", "11", "12", "13", "14", "15"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range p.nodes {
			if isDevice(a, n.HostVeth) {
				t.Errorf("%s takes %s for its own", a, n.HostVeth)
			}
			if strings.HasPrefix(n.Namespace, namespaceDir+"/"+a+"-") {
				t.Errorf("%s takes %s for its own", a, n.Namespace)
			}
		}
		if isDevice(a, p.bridge) {
			t.Errorf("%s takes %s for its own", a, p.bridge)
		}
	})
}

func TestBadConfigurationsAreNamed(t *testing.T) {
	many := make([]string, maxNodes+1)
	for i := range many {
		many[i] = "n" + strings.Repeat("x", i%60) + string(rune('a'+i/60))
	}
	subnet := netip.MustParsePrefix
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Name: "", Nodes: []string{"a"}}, "network name"},
		{Config{Name: "head-start", Nodes: []string{"a"}}, "network name"},
		{Config{Name: "1hs", Nodes: []string{"a"}}, "network name"},
		{Config{Name: "abcdefghijkl", Nodes: []string{"a"}}, "network name"},
		{Config{Name: "../x", Nodes: []string{"a"}}, "network name"},
		{Config{Name: "hs"}, "0 nodes"},
		{Config{Name: "hs", Nodes: many}, "101 nodes"},
		{Config{Name: "hs", Nodes: []string{"a/../b"}}, "not a DNS label"},
		{Config{Name: "hs", Nodes: []string{""}}, "not a DNS label"},
		{Config{Name: "hs", Nodes: []string{"a", "a"}}, "given twice"},
		{Config{Name: "hs", Nodes: []string{"a"}, Subnet: subnet("fd00::/16")}, "--subnet is not an IPv4"},
		{Config{Name: "hs", Nodes: []string{"a"}, Subnet: subnet("10.0.0.0/24")}, "--subnet 10.0.0.0/24 is too small"},
		{Config{Name: "hs", Nodes: []string{"a", "b"}, Subnet: subnet("10.0.0.0/23")}, "too small"},
	} {
		if _, err := newPlan(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.config, err)
		}
	}
}

func TestASubnetInUseIsRefused(t *testing.T) {
	subnet := netip.MustParsePrefix("10.201.0.0/16")
	for prefix, free := range map[string]bool{
		"0.0.0.0/0":      true,
		"10.200.0.0/16":  true,
		"192.168.1.0/24": true,
		"10.201.3.0/24":  false,
		"10.201.7.9/32":  false,
		"10.0.0.0/8":     false,
	} {
		err := conflict(subnet, []used{{netip.MustParsePrefix(prefix), "a route through wg0"}})
		if (err == nil) != free {
			t.Errorf("%s: %v", prefix, err)
		}
		if err == nil {
			continue
		}
		for _, want := range []string{prefix, "wg0", "--subnet"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in %v", want, err)
			}
		}
	}
}

func TestOnlyOurRulesAreDeleted(t *testing.T) {
	listing := `-P FORWARD ACCEPT
-N headstart-network-hs
-A FORWARD -i docker0 -j ACCEPT
-A FORWARD -i hs0 -s 10.201.0.0/16 -m comment --comment headstart-network-hs -j ACCEPT
-A FORWARD -m comment --comment headstart-network-hsx -j ACCEPT
-A FORWARD -m comment --comment "not headstart-network-hs" -j ACCEPT
-A FORWARD -o hs0 -m comment --comment "headstart-network-hs" -j ACCEPT
`
	want := [][]string{
		strings.Fields("-D FORWARD -i hs0 -s 10.201.0.0/16 -m comment --comment headstart-network-hs -j ACCEPT"),
		strings.Fields("-D FORWARD -o hs0 -m comment --comment headstart-network-hs -j ACCEPT"),
	}
	if d := cmp.Diff(want, deletions(listing, comment("hs"))); d != "" {
		t.Error(d)
	}
}

func FuzzDeletions(f *testing.F) {
	f.Add("-A FORWARD -m comment --comment headstart-network-hs -j ACCEPT")
	f.Add("-P --comment headstart-network-hs")
	f.Fuzz(func(t *testing.T, listing string) {
		for _, d := range deletions(listing, comment("hs")) {
			if d[0] != "-D" {
				t.Errorf("%q would do something else than delete", d)
			}
		}
	})
}

func TestSweepRefusesNamesThatMatchOthers(t *testing.T) {
	for _, name := range []string{"", "*", "hs-*", "../x"} {
		if err := Sweep(t.Context(), name); err == nil {
			t.Errorf("%q was swept", name)
		}
	}
}
