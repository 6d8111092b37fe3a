package identity

import (
	"net/netip"
	"testing"
)

func TestConnectionsAreBounded(t *testing.T) {
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	var c connections
	for range addressConnectionsMost {
		if !c.take(address(0)) {
			t.Fatal("an address is refused too early")
		}
	}
	if c.take(address(0)) {
		t.Error("one address has more than its share")
	}
	for i := range connectionsMost - addressConnectionsMost {
		if !c.take(address(i + 1)) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if c.take(address(connectionsMost + 1)) {
		t.Error("there are more than connectionsMost")
	}
	c.give(address(1))
	if !c.take(address(connectionsMost + 1)) {
		t.Error("what was closed still counts")
	}
	c.give(address(connectionsMost + 1))
	for i := range connectionsMost - addressConnectionsMost - 1 {
		c.give(address(i + 2))
	}
	for range addressConnectionsMost {
		c.give(address(0))
	}
	if c.open != 0 || len(c.from) != 0 {
		t.Errorf("%d connections of %d addresses are left", c.open, len(c.from))
	}
}
