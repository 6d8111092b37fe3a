package ingress

import (
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/problem"
)

var errStopping = undelivered{reported{problem.New(http.StatusServiceUnavailable, problem.ReasonDaemonStopping, "",
	"the node's daemon is being stopped; the request was not delivered and may be sent again")}}

// reported marks an error that the operator hears of from another side: instances
// report their failures, and a peer what it ran into.
type reported struct{ error }

func (e reported) Unwrap() error { return e.error }

func isReported(err error) bool {
	_, is := errors.AsType[reported](err)
	return is
}
