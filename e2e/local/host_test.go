//go:build integration

package local

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// gatewaysOf are the nodes whose gateways have spans in a request's trace.
func gatewaysOf(t *testing.T, id string) (nodes []string) {
	t.Helper()
	for _, s := range spansOf(t, id).Spans {
		if s.Service == tracing.ServiceGateway {
			node, _ := s.Attributes[string(tracing.Node)].(string)
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// A function calls another by its host, as any program does, and reaches the gateway of its own
// node, wherever the other one runs. It runs already when the other is deployed.
func TestFunctionsCallByTheirOwnNodesGateway(t *testing.T) {
	callers := map[string]string{testbed.Edge: "host-edge", testbed.Cloud: "host-cloud"}
	for node, name := range callers {
		deploy(t, testbed.Function{Name: name, Image: testbed.Handoff, Node: node})
		// Nobody has this name yet: the sandbox is there before it.
		if a := handoff(t, call{node: node, function: name, path: "/host?to=host-other.default:8080"}); a.status != http.StatusBadGateway {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	deploy(t, testbed.Function{Name: "host-other", Image: testbed.Handoff, Node: testbed.Cloud})
	body := "what is passed on"
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
	for node, name := range callers {
		for _, host := range []string{"host-other.default", "host-other.default.headstart.local"} {
			// The daemon hears of the function a moment after it is deployed.
			var id string
			eventually(t, host+" is found", func() error {
				id = fmt.Sprintf("%x", sha256.Sum256([]byte(rand.Text())))[:32]
				a := handoff(t, call{node: node, function: name, path: "/host?to=" + host + ":8080", body: strings.NewReader(body),
					header: map[string]string{"traceparent": "00-" + id + "-" + id[:16] + "-01"}})
				if string(a.body) != digest {
					return fmt.Errorf("%d %.300s", a.status, a.body)
				}
				return nil
			})
			eventually(t, "both spans are there", func() error {
				if got := gatewaysOf(t, id); !slices.Equal(got, []string{node, node}) {
					return fmt.Errorf("%s by the gateways of %q, from %s", host, got, node)
				}
				return nil
			})
		}
	}
}
