package ingress

import "net/http"

// What tests of time and limits need to know.
const (
	HintLife    = hintLife
	HintsOpen   = hintsOpen
	SyncTimeout = syncTimeout
	Placement   = placementTimeout
	Grace       = deliveryGrace
)

// Relays has requests for other autoscalers sent by rt.
func (in *Ingress) Relays(rt http.RoundTripper) { in.relaySide = transports{protocolH1: rt} }
