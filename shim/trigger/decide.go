package trigger

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// pauseFirst and pauseMost are the pauses between two tries, which double. Within the
	// first three a restart of what the function itself needs is over; half a minute is
	// how late an entry is at most once whatever kept it back is mended.
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
)

// outcome is what one delivery came to.
type outcome struct {
	status int
	// failure is Headstart's own word, nil if the answer is the function's.
	failure *problem.Problem
	// hopeless: it will be the same each time.
	hopeless bool
}

// decision is what follows from an outcome.
type decision struct {
	verdict Verdict
	// counts: the try is one of those that an entry has.
	counts bool
	// pause is how long to wait before the next one, of Again.
	pause time.Duration
	// reason and detail say what failed.
	reason, detail string
}

// reasonFunctionRefused is the reason of an entry that the function answered with another
// status than 2xx.
const reasonFunctionRefused = "FunctionRefused"

// decide says what becomes of an entry that was taken tries times, has most of them, and
// was delivered rounds times in a row from here.
func decide(o outcome, tries, most, rounds int) decision {
	d := decision{verdict: Again, counts: true, pause: pause(rounds)}
	switch {
	case o.failure != nil:
		d.reason, d.detail, d.counts = o.failure.Title, o.failure.Detail, o.hopeless || isEntrys(o.failure)
	case o.status/100 == 2:
		return decision{verdict: Done}
	default:
		d.reason, d.detail = reasonFunctionRefused, fmt.Sprintf("the function answered %d %s", o.status, http.StatusText(o.status))
	}
	if o.hopeless || d.counts && tries >= most {
		d.verdict, d.pause = Dead, 0
	}
	return d
}

// isEntrys tells whether a failure speaks against the entry. All others would be the same for any
// other entry: with them nothing is lost by waiting, and all would be by giving up.
func isEntrys(p *problem.Problem) bool { return problem.FaultOf(p) == problem.FaultRequest }

// pause is how long to wait after so many deliveries in a row.
func pause(rounds int) time.Duration {
	p := pauseFirst
	for i := 1; i < rounds && p < pauseMost; i++ {
		p *= 2
	}
	return min(p, pauseMost)
}
