package relay

import (
	"encoding/base64"

	"github.com/headstart-mesh/headstart/shim/accesslog"
)

// Who chose the instance of a request.
const (
	choicePicked    = "picked"    // the gateway's route filter
	choiceElsewhere = "elsewhere" // the filter as well, but the request went to another one
	choiceWeights   = "weights"   // the gateway's Envoy, as the filter said nothing
)

// choiceOf returns who chose the endpoint that a request went to. A mesh's filter names it in base64.
func choiceOf(entry accesslog.Entry) string {
	switch to := entry.To.String(); entry.Named {
	case "":
		return choiceWeights
	case to, base64.StdEncoding.EncodeToString([]byte(to)):
		return choicePicked
	default:
		return choiceElsewhere
	}
}
