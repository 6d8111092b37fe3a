// Package knative reads functions from Knative manifests: the subset of
// serving.knative.dev/v1 Service that the embedded platform honours. Whatever is outside
// the subset is refused by name, so that a manifest means the same here as on a cluster.
package knative

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// Limits on what a caller can make the parser hold. A real Service takes 1 to 4 KiB.
const (
	maxStream    = 16 << 20 // bytes
	maxDocument  = 1 << 20  // bytes; etcd allows Kubernetes objects 1.5 MiB
	maxDocuments = 1000
	maxProblems  = 100 // per document; after that the reader collects no more
)

// Error is one problem with one document.
type Error struct {
	Document int    // counts the documents that hold something, from 1
	Line     int    // of the whole stream, from 1
	Function string // namespace/name; empty when the document does not say
	Job      bool   // it is a job's
	Err      error  // a *field.Error unless the document is no YAML
}

func (e *Error) Error() string {
	if e.Function == "" {
		return fmt.Sprintf("document %d, line %d: %v", e.Document, e.Line, e.Err)
	}
	what := "function"
	if e.Job {
		what = "job"
	}
	return fmt.Sprintf("document %d, line %d: %s %s: %v", e.Document, e.Line, what, e.Function, e.Err)
}

// Unwrap makes the *field.Error visible to errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Errors are the problems of a stream, in its order.
type Errors []*Error

func (es Errors) Error() string { return field.Lines(es) }

// Unwrap makes each problem visible to errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// Parse reads the functions of a stream of YAML documents against the operator's lists. It returns all of them or an
// error: Errors, when the documents are at fault. Generation is left 0 for the adapter.
func Parse(r io.Reader, st stores.Stores, ds destinations.Destinations) ([]platform.Function, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStream+1))
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if len(data) > maxStream {
		return nil, fmt.Errorf("manifests are larger than %d bytes; apply them in parts", maxStream)
	}
	var (
		functions []platform.Function
		errs      Errors
		number    int
		seen      = map[string]int{}
	)
	for chunk := range split(data) {
		root, err := parseYAML(chunk)
		if root == nil && err == nil {
			continue
		}
		number++
		if number > maxDocuments {
			return nil, fmt.Errorf("more than %d documents; apply them in parts", maxDocuments)
		}
		if err != nil {
			errs = append(errs, &Error{Document: number, Line: err.line, Err: err})
			continue
		}
		d := &document{number: number, lines: chunk.line - 1}
		f := d.read(value{doc: d, line: root.Line, node: root}, st, ds)
		if first, ok := seen[d.function]; ok && d.function != "" {
			d.name.reportAs(d.function, fmt.Sprintf("is the function of document %d too", first), "give each function a name of its own")
		}
		seen[d.function] = number
		errs = append(errs, d.problems()...)
		if !d.beside {
			functions = append(functions, f)
		}
	}
	switch {
	case len(errs) > 0:
		return nil, errs
	case len(functions) == 0:
		return nil, errors.New("no function in the manifest; it needs a Service of serving.knative.dev/v1, or a Workflow of headstart.dev/v1alpha1")
	}
	return functions, nil
}

// document collects what is found in one document.
type document struct {
	number   int
	lines    int // of the stream before the document
	function string
	isJob    bool
	beside   bool  // it has no function here
	name     value // where the function's name stands
	errs     Errors
}

// add notes a problem; line is the YAML node's, in the document.
func (d *document) add(line int, err *field.Error) {
	if len(d.errs) < maxProblems {
		d.errs = append(d.errs, &Error{Document: d.number, Line: d.lines + line, Err: err})
	}
}

// problems returns what is wrong in the document's order, and under the function's name,
// which may stand after the first problem.
func (d *document) problems() Errors {
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return a.Line - b.Line })
	for _, e := range d.errs {
		e.Function, e.Job = d.function, d.isJob
	}
	return d.errs
}
