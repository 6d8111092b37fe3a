package main

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

// Each pool is a line, with a line for each function that has some of it.
func TestPoolsAreShown(t *testing.T) {
	var out strings.Builder
	err := printPools(&out, []nodePool{{"edge", admin.Pool{Destination: "orders", Held: 3, Wanted: 4, Allowed: 3, Functions: []admin.PooledFunction{
		{Function: "shop/cart", Held: 2, Wanted: 3, SetupSeconds: 0.0821, OldestSeconds: 12}, {Function: "shop/pay", Held: 1, Wanted: 1}}}}})
	want := `NODE   DESTINATION   FUNCTION    HELD   WANTED   ALLOWED   SETUP    OLDEST
edge   orders        -           3      4        3         -        -
-      -             shop/cart   2      3        -         82.1ms   12s
-      -             shop/pay    1      1        -         -        -
`
	if err != nil || out.String() != want {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
	out.Reset()
	if err := printPools(&out, nil); err != nil || out.String() != "No connections wait on any node.\n" {
		t.Errorf("%v, printed %q", err, out.String())
	}
}
