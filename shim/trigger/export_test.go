package trigger

import (
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// AtOnce, InHand and BytesInHand are the limits of one function.
const (
	AtOnce      = atOnce
	InHand      = inHand
	BytesInHand = bytesInHand
	IdleGrace   = idleGrace
	PauseMost   = pauseMost
)

// Event is what newEvent makes of an entry.
func Event(source string, e Entry) (h http.Header, body []byte) {
	ev := newEvent(source, e)
	return ev.header(), ev.body
}

// Input is the reference that a template makes of an entry.
func Input(source string, e Entry, t reference.Template) (string, error) {
	refs, err := newEvent(source, e).inputs(reference.Templates{"": t})
	return refs[""], err
}

// Decide is decide, of an answer or a failure.
func Decide(status int, failure *problem.Problem, hopeless bool, tries, most, rounds int) (v Verdict, counts bool, pause time.Duration, reason string) {
	d := decide(outcome{status, failure, hopeless}, tries, most, rounds)
	return d.verdict, d.counts, d.pause, d.reason
}
