package ingress

import (
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/proxy"
)

// What tests of time and limits need to know.
const (
	HintLife       = hintLife
	HeldMost       = heldMost
	HeldOfFunction = heldOfFunction
	HintsOpen      = hintsOpen
	SyncTimeout    = syncTimeout
	Placement      = placementTimeout
	Grace          = deliveryGrace
)

// Placements is how often a request is placed at most.
const Placements = placements

// Hasten has requests placed again without a pause to speak of.
func (in *Ingress) Hasten() { in.pause = time.Microsecond }

// Relays has requests for other autoscalers sent by rt.
func (in *Ingress) Relays(rt http.RoundTripper) { in.relaySide = proxy.Transports{H1: rt} }

// KeepAtOnce has the connection of a program be used again as soon as there is another request.
func (in *Ingress) KeepAtOnce() { in.kept = proxy.NewKept(functionDialTimeout, 0) }
