package program

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// The standard types of errors (dsl-reference.md, "Standard Error Types").
const (
	standard      = "https://serverlessworkflow.io/spec/1.0.0/errors/"
	Expression    = standard + "expression"
	Communication = standard + "communication"
	Timeout       = standard + "timeout"
	Runtime       = standard + "runtime"
	Validation    = standard + "validation"
)

// Fault is an error of a run, in the form of RFC 9457.
type Fault struct {
	Type   string
	Status int
	Title  string
	Detail string
	// Instance is where the document has what has failed (JSON pointer).
	Instance string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s: %s (%s)", f.Instance, cmp.Or(f.Detail, f.Title), f.Type)
}

// Value is what expressions see of the fault, and callers.
func (f *Fault) Value() map[string]any {
	v := map[string]any{"type": f.Type, "status": f.Status, "instance": f.Instance}
	if f.Title != "" {
		v["title"] = f.Title
	}
	if f.Detail != "" {
		v["detail"] = f.Detail
	}
	return v
}

func newFault(kind string, status int, title, instance string, err error) *Fault {
	f := &Fault{Type: kind, Status: status, Title: title, Instance: instance}
	if err != nil {
		f.Detail = err.Error()
	}
	return f
}

// badExpression is a fault of an expression.
func badExpression(path string, err error) *Fault {
	return newFault(Expression, http.StatusBadRequest, "Expression Error", path, err)
}

// overrun is a fault of a run that does too much.
func overrun(path string, err error) *Fault {
	return newFault(Runtime, http.StatusInternalServerError, "Runtime Error", path, err)
}

// late is the fault of a task, or a run, whose timeout is over.
func late(path string) *Fault {
	return newFault(Timeout, http.StatusRequestTimeout, "Timeout Error", path, errors.New("it takes longer than its timeout"))
}

// raised reads what an expression yields for a task that raises an error.
func raised(v any, path string) (*Fault, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("an error is an object")
	}
	f := &Fault{Instance: path}
	for name, field := range map[string]*string{"type": &f.Type, "title": &f.Title, "detail": &f.Detail, "instance": &f.Instance} {
		if v, set := m[name]; set && v != nil {
			if *field, ok = v.(string); !ok {
				return nil, fmt.Errorf("an error's %s is a string", name)
			}
		}
	}
	status, ok := m["status"].(int)
	if !ok || status < http.StatusBadRequest || status > 599 {
		return nil, errors.New("an error's status is a number from 400 to 599")
	}
	f.Status = status
	if f.Type == "" {
		return nil, errors.New("an error has a type")
	}
	return f, nil
}

// fits tells whether a filter takes the fault.
func (f *Fault) fits(w *nodeapi.ErrorFilter) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	return same(w.GetType(), f.Type) && same(w.GetInstance(), f.Instance) && same(w.GetTitle(), f.Title) &&
		same(w.GetDetail(), f.Detail) && (w.GetStatus() == 0 || int(w.GetStatus()) == f.Status)
}
