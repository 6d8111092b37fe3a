package trigger

import (
	"encoding/json"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// problemMost is how much of an answer is kept, in bytes: it may be Headstart's own
// problem details. Nobody reads any other.
const problemMost = 8 << 10

// problemType begins the type of Headstart's own problems, as problem.New has it.
const problemType = "https://headstart.dev/errors#"

// outcomeOf is what the whole answer says of an entry's fate.
func outcomeOf(a call.Answer) outcome {
	if a.Failed != nil {
		return outcome{status: a.Failed.Status, failure: a.Failed}
	}
	o := outcome{status: a.Status}
	var p problem.Problem
	if a.Header.Get("Content-Type") == filterapi.ProblemContentType && o.status/100 != 2 &&
		json.Unmarshal(a.Body, &p) == nil && p.Type == problemType+p.Title && problem.IsTitle(p.Title) {
		p.Status = o.status
		o.failure = &p
	}
	return o
}
