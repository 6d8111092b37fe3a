package ingress

import (
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"sync/atomic"
	"syscall"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// How far a request has come on the instance's node, which that tells the node that handed it
// over: in filterapi.HeaderProgress of answers of status 102. So it is known of a daemon that ends
// whether anybody may have had the request.
const (
	progressAsked = "tell" // in the request
	// progressParked says that the request is there. As the answer's first bytes it keeps net/http
	// from sending the request again by itself when its connection was kept from one before.
	progressParked     = "parked"
	progressDelivering = "delivering" // from now on the function may have it
)

// progressTo returns what tells the other daemon how far its request is, if that wants to
// hear it.
func progressTo(w http.ResponseWriter, r *http.Request) func(progress string) {
	if r.Header.Get(filterapi.HeaderProgress) != progressAsked {
		return func(string) {}
	}
	return func(progress string) {
		w.Header().Set(filterapi.HeaderProgress, progress)
		w.WriteHeader(http.StatusProcessing) // at once
		w.Header().Del(filterapi.HeaderProgress)
	}
}

// progress is what the other daemon has told. Its methods may be called at the same time.
type progress struct {
	asked      bool
	delivering atomic.Bool
}

// heard takes an answer before the answer.
func (p *progress) heard(_ int, header textproto.MIMEHeader) error {
	if header.Get(filterapi.HeaderProgress) == progressDelivering {
		p.delivering.Store(true)
	}
	return nil
}

// undelivered tells whether nobody can have got the request, whose connection ended with err:
// the other daemon would have said before it delivered it, and has ended. Of one that says
// nothing any more, nobody knows: it may be alive and cut off.
func (p *progress) undelivered(err error) bool {
	return p.asked && !p.delivering.Load() && !isSilence(err)
}

// isSilence tells whether a connection failed because the other side cannot be heard.
func isSilence(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout() ||
		errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}
