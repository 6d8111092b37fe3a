package ingress

import (
	"context"
	"io"
	"net/http"
	"time"
)

// What tests of time and limits need to know.
const (
	HintLife    = hintLife
	HintsOpen   = hintsOpen
	SyncTimeout = syncTimeout
	Placement   = placementTimeout
	Grace       = deliveryGrace
)

// BodyKept is how much of a body can be sent again; OpenBody opens one each time that what
// it returns is called.
const BodyKept = bodyKept

func OpenBody(from io.ReadCloser) (open func() io.ReadCloser, whole func() bool) {
	b := newClientBody(&http.Request{Body: from})
	open = func() io.ReadCloser {
		sent, _ := b.open(context.Background(), nil) // it is not in the buffer
		return sent
	}
	return open, b.whole
}

// Placements is how often a request is placed at most.
const Placements = placements

// Hasten has requests placed again without a pause to speak of.
func (in *Ingress) Hasten() { in.pause = time.Microsecond }

// Relays has requests for other autoscalers sent by rt.
func (in *Ingress) Relays(rt http.RoundTripper) { in.relaySide = transports{protocolH1: rt} }
