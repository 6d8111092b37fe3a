package trigger

import (
	"encoding/json"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// problemMost is how much of an answer is kept, in bytes, if it may be Headstart's own
// problem details; nobody reads any other.
const problemMost = 8 << 10

// problemType begins the type of Headstart's own problems, as problem.New has it.
const problemType = "https://headstart.dev/errors#"

// answer is an http.ResponseWriter that remembers what an entry's fate depends on.
type answer struct {
	header http.Header
	status int // 0: none yet
	kept   []byte
	failed *problem.Problem // as this node says it; nil: another one says it, or it has not failed
}

func newAnswer() *answer { return &answer{header: http.Header{}} }

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK { // the others only announce it
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.header.Get("Content-Type") == filterapi.ProblemContentType {
		a.kept = append(a.kept, p[:min(len(p), problemMost-len(a.kept))]...)
	}
	return len(p), nil
}

// Flush implements http.Flusher: there is nothing that could wait.
func (a *answer) Flush() {}

// Failed takes why there is no answer, or why it ends early: ingress says it, ahead of its panic.
func (a *answer) Failed(why error) { a.failed = problem.Of(why) }

// outcome is what the whole answer says.
func (a *answer) outcome() outcome {
	o := outcome{status: a.status}
	if o.status == 0 {
		o.status = http.StatusOK // net/http's own default
	}
	if a.failed != nil {
		o.failure = a.failed
		return o
	}
	var p problem.Problem
	if len(a.kept) > 0 && o.status/100 != 2 && json.Unmarshal(a.kept, &p) == nil && p.Type == problemType+p.Title && problem.IsTitle(p.Title) {
		p.Status = o.status
		o.failure = &p
	}
	return o
}
