package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/topology"
)

// spread is what a control plane says of a function on an edge node and one in the cloud.
func spread() routing.Explanation {
	return routing.Explanation{Function: "city/fire", Policy: "balanced", Decided: 2, Latency: 0.00512,
		Nodes: []routing.Node{
			{Name: "edge", Endpoints: []string{"10.0.0.1:8080"}, Requests: 400.4, InFlight: 1.7, Service: 0.004, Sojourn: 0.00423, Workers: 2, Trust: 1},
			{Name: "cloud", Endpoints: []string{"10.0.1.1:8080", "10.0.1.2:8080"}, Requests: 12, Service: 0.004, Sojourn: 0.004, Workers: 32, Guessed: true, Trust: 0.5, Silent: 71.4},
			{Name: "liar", Endpoints: []string{"10.0.2.1:8080"}, Service: 0.4, Sojourn: 0.4, Workers: 16, Guessed: true, Doubted: true, Failing: 0.25}},
		Gateways: []routing.Gateway{
			{Name: "edge", Requests: 412.4, Held: 80, To: []routing.To{
				{Node: "edge", Share: 1, Wanted: 0.9612, Source: topology.Itself, Others: 0.4},
				{Node: "cloud", Wanted: 0.0388, RTT: 0.0501, Source: topology.Own, RTTAge: 4, RTTError: 0.03},
				{Node: "liar", RTT: 0.0501, Source: topology.Unknown}}},
			{Name: "cloud", To: []routing.To{{Node: "edge", RTT: 0.05}, {Node: "cloud", Share: 1, Wanted: 1, Source: topology.Itself}, {Node: "liar"}}}}}
}

func TestWeightsText(t *testing.T) {
	var out bytes.Buffer
	e := spread()
	e.Gateways = e.Gateways[:1]
	if err := printWeights(&out, e); err != nil {
		t.Fatal(err)
	}
	const want = `city/fire: balanced, looked at 2s ago. A request is expected to take 5.12ms.

NODE    ENDPOINTS   REQUESTS/S    SERVICE   ON NODE   IN FLIGHT   WORKERS                        SILENT
edge    1           400           4ms       4.23ms    1.7         2                              -
cloud   2           12            4ms       4ms       0           32 guessed                     1m11s
liar    1           0, 25% fail   400ms     400ms     0           16 guessed, its word doubted   -

GATEWAY   REQUESTS/S   TO      SHARE   WANTED   RTT      FROM                    OTHERS   HELD
edge      412          edge    100%    96.1%    -        itself                  0.4      1m20s
edge      412          cloud   0%      3.88%    50.1ms   measured, 4s ago, ±3%   0        1m20s
edge      412          liar    0%      0%       50.1ms   unknown                 0        1m20s
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	out.Reset()
	if err := printWeights(&out, routing.Explanation{Function: "city/fire", Even: "it has less than two endpoints"}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "Requests of city/fire are spread evenly: it has less than two endpoints.\n" {
		t.Error(got)
	}
}

func TestWeightsOfAFunction(t *testing.T) {
	dir := serve(t, &backend{weights: spread()})
	stdout, _, err := headstart(t, "", "weights", "city/fire", "-o", "json", "--run-dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	var got routing.Explanation
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(spread(), got); d != "" {
		t.Error(d)
	}
	stdout, _, err = headstart(t, "", "weights", "city/fire", "--gateway", "cloud", "--run-dir", dir)
	if err != nil || strings.Count(stdout, "\ncloud ") != 4 || strings.Contains(stdout, "itself                  0.4") {
		t.Errorf("%v; of one gateway:\n%s", err, stdout)
	}
	stdout, _, err = headstart(t, "", "weights", "city/fire", "--gateway", "nowhere", "--run-dir", dir)
	if err != nil || !strings.HasSuffix(stdout, "\nNo such gateway.\n") {
		t.Errorf("%v; of none:\n%s", err, stdout)
	}
	if _, _, err := headstart(t, "", "weights", "fire", "--run-dir", dir); err == nil || err.Error() != "no such function; `headstart status` lists them" {
		t.Errorf("of no function: %v", err)
	}
}

func TestWeightsInACluster(t *testing.T) {
	stdout, stderr, err := headstart(t, "", "weights", "fire", "-n", "city", "--kubeconfig", kubeconfig(t, &backend{weights: spread()}))
	if err != nil || !strings.HasPrefix(stdout, "city/fire: balanced") {
		t.Errorf("%v, %s; printed:\n%s", err, stderr, stdout)
	}
}
