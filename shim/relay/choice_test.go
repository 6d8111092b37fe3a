package relay

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headstart-mesh/headstart/shim/accesslog"
)

// named is the entry of a request for which the route filter has named an endpoint.
func named(e accesslog.Entry, endpoint string) accesslog.Entry {
	e.Named = endpoint
	return e
}

func inBase64(endpoint string) string { return base64.StdEncoding.EncodeToString([]byte(endpoint)) }

// Each request counts once, whatever became of it, and what no function is called makes no label.
func TestRequestsAreCountedByWhoChose(t *testing.T) {
	const here = instance + ":8080"
	six := with(ended(200, time.Millisecond), func(e *accesslog.Entry) { e.To = netip.MustParseAddrPort("[fd00::1]:8080") })
	registry := prometheus.NewRegistry()
	a := newActivity(&activities{}, newSent(NewMetrics(registry), time.Now()))
	a.setFunctions(functions())
	a.seen([]accesslog.Entry{
		named(goesOn(), here), named(ended(200, time.Second), here), named(ended(503, time.Second), inBase64(here)), named(six, inBase64("[fd00::1]:8080")),
		named(ended(200, time.Second), inBase64(instance+":8081")), named(ended(200, time.Millisecond), "%"),
		ended(200, time.Second),
		named(with(ended(200, time.Second), func(e *accesslog.Entry) { e.Function = "default/made-up" }), here),
	})
	var want strings.Builder
	want.WriteString("# HELP headstart_relay_requests_total Requests that the node's gateways sent to instances, by who chose the instance: picked, elsewhere or weights.\n# TYPE headstart_relay_requests_total counter\n")
	for choice, n := range map[string]int{"picked": 3, "elsewhere": 2, "weights": 1} {
		fmt.Fprintf(&want, "headstart_relay_requests_total{choice=%q,function=\"default/fire\"} %d\n", choice, n)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want.String()), "headstart_relay_requests_total"); err != nil {
		t.Error(err)
	}
}
