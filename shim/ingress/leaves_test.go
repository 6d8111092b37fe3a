package ingress_test

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"sync"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A client that leaves is noticed also while nobody takes the body that it sends, however much
// of that is on its way: its request waits no longer, on no node, and nobody goes on starting a
// function for it.
func TestAClientThatLeavesWhileItsBodyWaits(t *testing.T) {
	much := func(context.Context) io.Reader { return bytes.NewReader(make([]byte, inputLimit)) } // more than sockets hold
	for name, c := range map[string]struct {
		function string
		body     func(context.Context) io.Reader
	}{
		"a part of it has come":      {withoutInput, halfBody},
		"more than is on its way":    {withoutInput, much},
		"beside a stored input":      {withInput, much},
		"the buffer has no room":     {withBody, much},
		"the buffer has room enough": {withBody, halfBody},
	} {
		for _, where := range []string{"while it is placed", "while the instance starts", "while another node's instance starts"} {
			t.Run(name+", "+where, func(t *testing.T) {
				gateway, there := nodes(t, where == "while another node's instance starts")
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				given := make(chan struct{})
				var once sync.Once
				wait := func(ctx context.Context) error {
					leave()
					err := hang(ctx)
					once.Do(func() { close(given) })
					return err
				}
				if where == "while it is placed" {
					gateway.cp.activate = func(ctx context.Context, _ *nodeapi.Activate) (*nodeapi.Bound, error) { return nil, wait(ctx) }
				} else {
					there.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) { return netip.AddrPort{}, wait(ctx) }
				}
				if name == "the buffer has no room" {
					defer gateway.occupied(t, 0)()
					if gateway != there {
						defer there.occupied(t, 0)()
					}
				}
				ref := ""
				if c.function == withInput {
					ref = gateway.put("some", "", []byte("input"))
					there.put("some", "", []byte("input"))
				}
				req := request(t, "POST", c.function, newID(), ref, c.body(ctx)).WithContext(ctx)
				req.ContentLength = -1
				if resp, err := gateway.gateway.Do(req); err == nil {
					t.Errorf("the client is answered %s", resp.Status)
					_ = resp.Body.Close()
				}
				<-given
				for _, r := range []*rig{gateway, there} {
					eventually(t, "nothing is held", func() bool { return r.cp.holds(c.function) == 0 })
					if told := r.cp.told(); told != nil {
						t.Errorf("the operator is told %v", told)
					}
				}
			})
		}
	}
}
