package istio

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Status is how far the mesh has come, for `headstart check`.
type Status struct {
	// Installed: the API server knows Istio's objects. While it does not, there is
	// nothing to do and no problem.
	Installed bool
	// Objects is the number of generated objects that are as they should be.
	Objects  int
	Problems []Problem
}

// Cause is one word for what is wrong; docs/reference/istio.md lists them.
type Cause string

// The causes of a Problem.
const (
	Forbidden   Cause = "Forbidden"   // RBAC
	Contested   Cause = "Contested"   // another field manager has our field
	NotOurs     Cause = "NotOurs"     // an object of the name that is not ours
	Missing     Cause = "Missing"     // the object that brings the filter
	Rejected    Cause = "Rejected"    // the API server or Istio's webhook does not take the object
	Unavailable Cause = "Unavailable" // the API server does not answer
)

// Problem is one thing that could not be done. It is tried again.
type Problem struct {
	// Object is kind namespace/name, or the kind alone.
	Object  string
	Cause   Cause
	Message string
	// Fix is what the operator can do.
	Fix string
}

func (p Problem) Error() string { return fmt.Sprintf("%s: %s: %s", p.Object, p.Cause, p.Message) }

// problem says of an API server's error what an operator can do about it.
func problem(object string, err error) Problem {
	p := Problem{Object: object, Message: err.Error()}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		p.Cause, p.Fix = Forbidden, "grant the control plane's service account the rules in docs/reference/istio.md"
	case apierrors.IsConflict(err):
		p.Cause, p.Fix = Contested, "let the manager that the message names give the field up: it is the control plane's"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		p.Cause, p.Fix = Rejected, "compare Istio's version with those in docs/reference/istio.md"
	default:
		p.Cause, p.Fix = Unavailable, "look at the API server, and at Istio's validation webhook if the message names it"
	}
	return p
}
