package sandboxes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// asked notes to what containers are to be connected.
type asked struct{ connections []*nodeapi.Connections }

func (a *asked) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	a.connections = append(a.connections, sb.Connections)
	return sandboxes.Need{}, nil
}
func (*asked) Release(string) {}

// A container that asks for connections waits for the control plane's word, as long as its shim waits: it says late what a pod is to
// have when it is being replaced.
func TestConnectionsThatAreSaidLate(t *testing.T) {
	for name, c := range map[string]struct {
		said, shim time.Duration
		want       string
	}{
		"in time":             {9 * time.Second, 12 * time.Second, "orders"},
		"too late":            {11 * time.Second, 12 * time.Second, ""},
		"with an older shim":  {1500 * time.Millisecond, 2 * time.Second, ""},
		"said before it asks": {0, 2 * time.Second, "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := newPodRig(t), &asked{}
				r.Close()
				r.configure.Providers = []sandboxes.Provider{a}
				r.open()
				of := pod("fire-x", "main")
				go func() {
					time.Sleep(c.said)
					r.Instances(&nodeapi.Instances{Connections: []*nodeapi.Connections{{Id: of.SandboxID(), Container: "main", Destinations: []string{"orders"}}}})
				}()
				time.Sleep(time.Millisecond) // whatever is said before it asks is heard
				ctx, cancel := context.WithTimeout(t.Context(), c.shim)
				defer cancel()
				if _, err := r.Describe(ctx, &nodeapi.DescribeRequest{Sandbox: "a", Pod: of, Connections: true}); err != nil || ctx.Err() != nil {
					t.Fatalf("it is not described in time: %v, %v", err, ctx.Err())
				}
				got := ""
				if len(a.connections) == 1 && a.connections[0] != nil {
					got = a.connections[0].GetDestinations()[0]
				}
				if got != c.want {
					t.Errorf("the container has %q, want %q", got, c.want)
				}
				time.Sleep(c.said)
			})
		})
	}
}
