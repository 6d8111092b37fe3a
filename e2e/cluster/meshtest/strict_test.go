//go:build cluster

package meshtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

func TestAFunctionBehindASidecarUnderStrictMutualTLS(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "fire", namespace: strict, function: true}
	deploy(t, gateway, f)
	began := time.Now()
	cold := ok(t, gateway, f, true)
	t.Logf("cold, with an input: %v", time.Since(began))
	if !cold.from(daemonIdentity) {
		t.Errorf("cold: the sidecar saw %q", cold.report.Header.Get("X-Forwarded-Client-Cert"))
	}
	becomesHot(t, gateway, f)
	for range 5 {
		if a := ok(t, gateway, f, false); !a.from(gatewayIdentity) {
			t.Errorf("hot: the sidecar saw %q", a.report.Header.Get("X-Forwarded-Client-Cert"))
		}
		if a := ok(t, gateway, f, true); !a.from(daemonIdentity) {
			t.Errorf("hot, with an input: the sidecar saw %q", a.report.Header.Get("X-Forwarded-Client-Cert"))
		}
	}
}

// becomesHot waits until the gateway sends requests to a pod itself. Until istiod has told it of the first pod, they
// are answered by way of the daemon.
func becomesHot(t *testing.T, gateway pod, f service) {
	t.Helper()
	eventually(t, "the gateway sends requests to the pod itself", func(context.Context) error {
		if a := ok(t, gateway, f, false); !a.from(gatewayIdentity) {
			return fmt.Errorf("the sidecar saw %q", a.report.Header.Get("X-Forwarded-Client-Cert"))
		}
		return nil
	})
}

// Requests that Envoy sends by HTTP/2 to a port so named stay what they are when they
// are parked.
func TestAFunctionThatSpeaksHTTP2BehindASidecar(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "two", namespace: strict, function: true, port: "http2"}
	deploy(t, gateway, f)
	for _, a := range []answer{ok(t, gateway, f, true), ok(t, gateway, f, true), ok(t, gateway, f, false)} {
		if a.report.Proto != "HTTP/2.0" {
			t.Errorf("it came to the function as %s", a.report.Proto)
		}
	}
}

func TestAPodWithoutASidecarDoesNotReachTheFunction(t *testing.T) {
	gateway := ingressGateway(t)
	inside, outside := service{name: "closed", namespace: strict, replicas: 1, function: true}, service{name: "outside", namespace: plain, replicas: 1}
	deploy(t, gateway, inside, outside)
	ok(t, gateway, inside, true)
	from, to := readyPod(t, plain, "app=outside"), readyPod(t, strict, "app=closed")
	if got, err := fromWithin(t.Context(), from, from.ip); err != nil || got != http.StatusOK {
		t.Fatalf("the pod does not reach itself: %d %v", got, err)
	}
	if got, err := fromWithin(t.Context(), from, to.ip); err == nil {
		t.Errorf("the function's pod answered a plain request: %d", got)
	}
	if got, err := fromWithin(t.Context(), from, gateway.ip); err != nil || got != http.StatusNotFound {
		t.Errorf("the gateway: %d %v", got, err)
	}
}

// fromWithin asks port 8080 of an address from a pod's network namespace.
func fromWithin(ctx context.Context, p pod, ip string) (status int, err error) {
	pids, err := world.Processes("witness")
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !strings.Contains(string(cgroup), p.uid) {
			continue
		}
		transport := &http.Transport{DialContext: func(ctx context.Context, proto, address string) (conn net.Conn, err error) {
			err = nsthread.Run(fmt.Sprintf("/proc/%d/ns/net", pid), func() error {
				var d net.Dialer
				conn, err = d.DialContext(ctx, proto, address)
				return err
			})
			return conn, err
		}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8080/", nil)
		if err != nil {
			return 0, err
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	return 0, fmt.Errorf("no process of pod %s", p.name)
}

// The policy is the one of docs/operations/istio.md.
func TestAnAuthorizationPolicyHasToAllowTheDaemonToo(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "fire", namespace: guarded, function: true}
	full := documentedPolicy(t)
	var gatewayOnly []string
	for line := range strings.Lines(full) {
		if !strings.Contains(line, "sa/headstart-node") {
			gatewayOnly = append(gatewayOnly, line)
		}
	}
	apply(t, strings.Join(gatewayOnly, ""))
	deploy(t, gateway, f)

	cold, err := call(t.Context(), gateway, f, true)
	if err != nil || cold.status != http.StatusForbidden || !strings.Contains(cold.text, "RBAC: access denied") {
		t.Errorf("cold, the gateway alone is allowed: %v %v", cold, err)
	}
	becomesAllowed(t, "the gateway sends requests to the pod itself", gateway, f, false) // until then they go by way of the daemon
	if a, err := call(t.Context(), gateway, f, true); err != nil || a.status != http.StatusForbidden {
		t.Errorf("hot with an input, the gateway alone is allowed: %v %v", a, err)
	}

	apply(t, full)
	becomesAllowed(t, "the daemon is allowed", gateway, f, true)
	ok(t, gateway, f, true)

	again := service{name: "again", namespace: guarded, function: true}
	apply(t, strings.NewReplacer("name: fire", "name: again", "app: fire", "app: again").Replace(full))
	deploy(t, gateway, again)
	if a := ok(t, gateway, again, true); !a.from(daemonIdentity) {
		t.Errorf("cold: the sidecar saw %q", a.report.Header.Get("X-Forwarded-Client-Cert"))
	}
}

// becomesAllowed waits until a request is answered, whatever becomes of those before.
func becomesAllowed(t *testing.T, what string, gateway pod, f service, input bool) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) error {
		a, err := call(ctx, gateway, f, input)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%v", a)
		}
		return err
	})
}

func documentedPolicy(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(in.Source("docs/operations/istio.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(page), "```")[1:] {
		if policy, is := strings.CutPrefix(block, "yaml\n"); is && strings.Contains(policy, "kind: AuthorizationPolicy") {
			return strings.Replace(policy, "namespace: default", "namespace: "+guarded, 1)
		}
	}
	t.Fatal("docs/operations/istio.md has no AuthorizationPolicy")
	return ""
}
