package connections

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/session"
)

const (
	// deniedPause is the pause in logging in ahead after the first log-in that is denied, which doubles until deniedPauseMost, as
	// the pool's do: servers lock out users, or addresses, after a few.
	deniedPause     = time.Second
	deniedPauseMost = time.Minute

	reasonDenied     = "DestinationDenied"
	causeCertificate = "certificate"
)

// denials are what is known of a server's log-in. Its zero value is of a server that has not been asked yet.
type denials struct {
	mu     sync.Mutex
	good   bool      // the last log-in was not denied
	trying bool      // one is being made ahead while that is not so
	again  time.Time // after a denial, when the next one may be made ahead
	pause  time.Duration
	told   map[string]string // the cause that functions have been told of
}

// enter tells whether a log-in may be made before anybody asks, which is over by leave; nil: it may not. As long as none has
// succeeded, there is one at a time.
func (n *denials) enter(now time.Time) (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.good {
		return func() {}
	}
	if n.trying || now.Before(n.again) {
		return nil
	}
	n.trying = true
	return func() { n.mu.Lock(); defer n.mu.Unlock(); n.trying = false }
}

// note notes a log-in for a function. news: its owner has not been told yet that it is denied.
func (n *denials) note(function string, err error, now time.Time) (news bool) {
	cause := cause(err)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		n.good, n.again, n.pause = true, time.Time{}, 0
		delete(n.told, function)
		return false
	case cause == "":
		return false
	}
	n.good = false
	if !now.Before(n.again) { // else it was under way already, or is the program's own
		n.pause = min(max(deniedPause, 2*n.pause), deniedPauseMost)
		n.again = now.Add(n.pause)
	}
	if n.told == nil || len(n.told) >= startsMost {
		n.told = map[string]string{}
	}
	news = n.told[function] != cause
	n.told[function] = cause
	return news
}

// renew forgets what was said of another secret or of another address.
func (n *denials) renew() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.good, n.again, n.pause, n.told = false, time.Time{}, 0, nil
}

// cause is why only the operator can help, in few words that do not change; empty: that is not so.
func cause(err error) string {
	if refused, is := errors.AsType[*session.Refusal](err); is && refused.Denied() {
		return refused.Code
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return causeCertificate
	}
	return ""
}

// denied tells a function's owner.
func (s *Server) denied(d *destination, function string, err error) {
	s.config.Event(&nodeapi.Event{Function: function, Reason: reasonDenied, Field: filterapi.AnnotationConnections,
		Message: fmt.Sprintf("destination %q: no log-in is possible: %v; the operator has to correct the destination or its secret",
			d.config.GetName(), err)})
}
