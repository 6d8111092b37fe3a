// Package check looks at a Kubernetes cluster, before and after Headstart is installed,
// and says what is wrong and how to mend it. Checks are data; each looks at one thing
// that has to be so, and changes nothing.
package check

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// checkTimeout bounds one check, most of which ask the API server a few things.
const checkTimeout = 30 * time.Second

// Status is how a check went.
type Status string

// The ends of a check.
const (
	Pass Status = "pass"
	Warn Status = "warn" // it works, and not as well or not for as much as it could
	Fail Status = "fail" // something does not work
	Skip Status = "skip" // it could not be looked at, or there is nothing to look at
)

// Check is one thing that has to be so.
type Check struct {
	// ID names it for scripts, for other checks' Needs, and in docs/reference/checks.md.
	ID   string
	Name string
	// Needs are the checks without which this one says nothing: it is skipped when one
	// of them has failed or was skipped.
	Needs []string
	// Hint says what to do when it fails, for problems that do not say so themselves.
	Hint string
	// Anchor is the section of docs/operations/troubleshooting.md for it.
	Anchor string

	run func(context.Context, *look) Outcome
}

// Docs is the page of the Anchors.
const Docs = "docs/operations/troubleshooting.md"

// Outcome is what a check has found.
type Outcome struct {
	Status Status
	// Message is one line: what is there, or how much of it is wrong.
	Message  string
	Problems []Problem
	// unseen: the rights to look lack.
	unseen bool
	// unanswered: the API server did not answer, which says nothing of what was to be looked at.
	unanswered bool
}

// Problem is one thing to mend.
type Problem struct {
	// Object is kind, namespace and name; empty for the cluster itself.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
}

// Result is a check with its outcome.
type Result struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Status   Status    `json:"status"`
	Message  string    `json:"message,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// Hint and Docs are there when the check failed or warns.
	Hint string `json:"hint,omitempty"`
	Docs string `json:"docs,omitempty"`
	// Unseen: the check was skipped, as who asks may not see what it looks at.
	Unseen bool `json:"unseen,omitempty"`
}

// Env is what the checks look at.
type Env struct {
	Objects *objects.Reader
	// Namespace is Headstart's, MeshNamespace Istio's root namespace.
	Namespace, MeshNamespace string
	// Only is the one namespace whose functions are looked at; empty: all.
	Only string
	// Version is this program's.
	Version string
	// Status asks the control plane.
	Status func(context.Context) (admin.Status, error)
}

// Run looks, one check after the other. each, if not nil, gets every result as soon as
// it is there.
func Run(ctx context.Context, checks []Check, e Env, each func(Result)) []Result {
	l := &look{Env: e}
	results := make([]Result, 0, len(checks))
	for _, c := range checks {
		r := c.result(ctx, l, results)
		results = append(results, r)
		if each != nil {
			each(r)
		}
	}
	return results
}

func (c Check) result(ctx context.Context, l *look, before []Result) Result {
	r := Result{ID: c.ID, Name: c.Name}
	for _, b := range before {
		if slices.Contains(c.Needs, b.ID) && (b.Status == Fail || b.Status == Skip) {
			r.Status, r.Message = Skip, "needs: "+b.Name
			return r
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	o := c.run(ctx, l)
	r.Status, r.Message, r.Problems, r.Unseen = o.Status, o.Message, o.Problems, o.unseen
	if o.Status == Fail || o.Status == Warn {
		r.Hint, r.Docs = c.Hint, Docs+"#"+c.Anchor
	}
	if o.unanswered {
		r.Hint, r.Docs = hintUnanswered, Docs+"#"+anchorUnanswered
	}
	return r
}

// Failed counts the results that failed.
func Failed(results []Result) int {
	n := 0
	for _, r := range results {
		if r.Status == Fail {
			n++
		}
	}
	return n
}

func pass(format string, args ...any) Outcome {
	return Outcome{Status: Pass, Message: fmt.Sprintf(format, args...)}
}

func warn(format string, args ...any) Outcome {
	return Outcome{Status: Warn, Message: fmt.Sprintf(format, args...)}
}

func fail(format string, args ...any) Outcome {
	return Outcome{Status: Fail, Message: fmt.Sprintf(format, args...)}
}

func skip(format string, args ...any) Outcome {
	return Outcome{Status: Skip, Message: fmt.Sprintf(format, args...)}
}

// with adds problems, sorted by object.
func (o Outcome) with(problems []Problem) Outcome {
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
	o.Problems = problems
	return o
}

// unknown is the outcome of a check that could not look: what somebody may not see is not
// known to be wrong.
func unknown(what string, err error) Outcome {
	if apierrors.IsForbidden(err) {
		o := skip("you may not look at %s", what)
		o.unseen = true
		return o
	}
	o := fail("looking at %s: %v", what, err)
	_, o.unanswered = errors.AsType[*url.Error](err)
	return o
}
