package ingress

import (
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// Reasons for which an instance did not get a request, and that are not its own.
const (
	reasonDaemonStopping  = "DaemonStopping"
	reasonPeerUnreachable = "PeerUnreachable"
	reasonRelayFailed     = "RelayFailed"
)

var (
	// errClientGone is nobody's failure. Whoever sent half a body and still listens is
	// told, hence the status.
	errClientGone = problem.New(http.StatusBadRequest, "ClientGone", "", "the client went away before its request was over")

	errStopping = undelivered{reported{problem.New(http.StatusServiceUnavailable, reasonDaemonStopping, "", "the node's daemon is being stopped; the request was not delivered and may be sent again")}}
)

// reported marks an error that the operator hears of from another side: instances
// report their failures, and a peer what it ran into.
type reported struct{ error }

func (e reported) Unwrap() error { return e.error }

func isReported(err error) bool {
	_, is := errors.AsType[reported](err)
	return is
}

// broken marks an error after the answer's first byte: too late for a problem.
type broken struct{ error }

func (e broken) Unwrap() error { return e.error }

func isBroken(err error) bool {
	_, is := errors.AsType[broken](err)
	return is
}
