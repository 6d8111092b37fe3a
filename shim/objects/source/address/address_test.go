package address

import (
	"net/netip"
	"testing"
)

func TestAddressesOfStores(t *testing.T) {
	const none, fixed, private_, loop = "", "link-local or special", "private", "loopback"
	for at, want := range map[string]struct {
		name, public, literal string // of a host that is a name, the same of a public store, and the address itself
	}{
		"203.0.113.7":            {none, none, none},
		"2001:db8::7":            {none, none, none},
		"10.1.2.3":               {none, private_, none},
		"172.31.255.255":         {none, private_, none},
		"172.32.0.0":             {none, none, none},
		"192.168.0.1":            {none, private_, none},
		"100.64.0.1":             {none, private_, none},
		"100.127.255.255":        {none, private_, none},
		"fd12::1":                {none, private_, none},
		"64:ff9b::a01:203":       {none, private_, none}, // 10.1.2.3
		"::ffff:10.1.2.3":        {none, private_, none},
		"127.0.0.1":              {loop, loop, none},
		"127.8.0.1":              {loop, loop, none},
		"::1":                    {loop, loop, none},
		"::ffff:127.0.0.1":       {loop, loop, none},
		"64:ff9b::7f00:1":        {loop, loop, loop},
		"169.254.169.254":        {fixed, fixed, fixed},
		"::ffff:169.254.169.254": {fixed, fixed, fixed},
		"64:ff9b::a9fe:a9fe":     {fixed, fixed, fixed},
		"fe80::1%eth0":           {fixed, fixed, fixed},
		"fd00:ec2::254":          {fixed, fixed, fixed},
		"100.100.100.200":        {fixed, fixed, fixed},
		"168.63.129.16":          {fixed, fixed, fixed},
		"0.0.0.0":                {fixed, fixed, fixed},
		"::":                     {fixed, fixed, fixed},
		"224.0.0.1":              {fixed, fixed, fixed},
		"ff02::1":                {fixed, fixed, fixed},
	} {
		a := netip.MustParseAddr(at)
		for _, c := range []struct {
			rule Rule
			want string
		}{
			{Rule{Host: "store.example.com"}, want.name},
			{Rule{Host: "store.example.com", Public: true}, want.public},
			{Rule{Host: at}, want.literal},
			{Rule{Host: at, Public: true}, want.literal},
		} {
			got := ""
			if refused := c.rule.refuses(a); refused != nil {
				got = refused.what
			}
			if got != c.want {
				t.Errorf("%+v at %s: %q, want %q", c.rule, at, got, c.want)
			}
		}
	}
}

// localhost is the operator's word for the machine; no other name is.
func TestLocalhost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "videos.localhost": true, "localhost.example.com": false,
		"notlocalhost": false, "127.0.0.1": true, "10.0.0.1": false,
	} {
		if got := (Rule{Host: host, Public: true}).refuses(netip.MustParseAddr("127.0.0.1")) == nil; got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}
