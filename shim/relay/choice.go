package relay

import (
	"cmp"
	"encoding/base64"
	"net/netip"

	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Who chose the instance of a request.
const (
	choicePicked    = "picked"    // the gateway's route filter
	choiceElsewhere = "elsewhere" // the filter as well, but the request went to another one
	choiceWeights   = "weights"   // the gateway's Envoy, as the filter said nothing
)

// choiceOf returns who chose the endpoint that a request went to. The entry has what the filter
// has named: additional_request_headers_to_log in manifests/istio/gateways.yaml, and in shim/gateway.
func choiceOf(entry *logdata.HTTPAccessLogEntry, at netip.AddrPort) string {
	headers := entry.GetRequest().GetRequestHeaders()
	switch cmp.Or(headers[filterapi.HeaderSession], headers[filterapi.HeaderEndpoint]) {
	case "":
		return choiceWeights
	case at.String(), base64.StdEncoding.EncodeToString([]byte(at.String())):
		return choicePicked
	default:
		return choiceElsewhere
	}
}
