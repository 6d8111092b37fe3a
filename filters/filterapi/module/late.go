package module

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
)

// heldMost is how many requests for filters a stream holds back: a gateway asks once for each.
const heldMost = 16

// Late is a stream of all of a gateway's configuration on which filters come last, when the
// gateway has said that it has its routes. Envoy compiles a module on its main thread, for
// seconds: a starting gateway opens no listener meanwhile, while one that serves goes on without
// the filter. A gateway that has its filters already, from before the stream, keeps them.
func Late(s stream.DeltaStream) stream.DeltaStream { return &late{DeltaStream: s} }

type late struct {
	stream.DeltaStream
	serves bool // the gateway does
	held   []*discovery.DeltaDiscoveryRequest
}

// Recv returns the gateway's next request, one for filters not before the gateway serves.
func (l *late) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	for {
		if l.serves && len(l.held) > 0 {
			r := l.held[0]
			l.held = l.held[1:]
			return r, nil
		}
		r, err := l.DeltaStream.Recv()
		if err != nil {
			return nil, err
		}
		switch {
		case l.serves:
		// Taken or refused, they come no sooner; or it has them from before the stream.
		case r.GetTypeUrl() == resource.RouteType && (r.GetResponseNonce() != "" || len(r.GetInitialResourceVersions()) > 0):
			l.serves = true
		case r.GetTypeUrl() == resource.ExtensionConfigType:
			if len(r.GetInitialResourceVersions()) == 0 && len(l.held) < heldMost {
				l.held = append(l.held, r)
				continue
			}
			l.serves = true
			l.held = append(l.held, r) // in their order
			continue
		}
		return r, nil
	}
}
