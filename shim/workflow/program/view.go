package program

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
)

type expr = expression.Expression

const (
	// maxDoublings and delayMost bound the delay of a retry: no run lasts that long.
	maxDoublings = 20
	delayMost    = time.Hour
)

// view is what an expression sees, beside its task and its run.
type view struct {
	value         any // what it is evaluated on
	context       any
	input, output any // of the task, transformed
	raw           any // output of the task
}

// unknown is in the place of a value that nobody knows: in runs that are only looked at (Ahead).
type unknown struct{}

func isUnknown(v any) bool {
	_, is := v.(unknown)
	return is
}

// together is an array, of which all is unknown if a part is.
func together(values []any) any {
	if slices.ContainsFunc(values, isUnknown) {
		return unknown{}
	}
	return values
}

// eval evaluates an expression of a frame; without one the value stays as it is. What refers to something that is unknown yields
// what is unknown.
func (t *turn) eval(e *expr, f *frame, v view) (any, error) {
	if e == nil {
		return v.value, nil
	}
	var task, workflow any
	if e.Uses("$task") && f.task != nil {
		if isUnknown(f.raw) || isUnknown(v.raw) {
			return unknown{}, nil
		}
		task = map[string]any{"name": f.task.name, "reference": f.task.path, "input": f.raw, "output": v.raw, "startedAt": at(f.started)}
	}
	if run := t.s.run; e.Uses("$workflow") {
		workflow = map[string]any{"id": run.id, "input": run.input, "startedAt": at(run.started)}
	}
	values := append([]any{v.context, v.input, v.output, task, workflow, runtime}, f.scope...)
	if t.guesses != nil && e.Needs(isUnknown, v.value, values...) {
		return unknown{}, nil
	}
	return e.Eval(context.Background(), v.value, values...)
}

// runtime is what expressions see of Headstart.
var runtime = map[string]any{"name": "Headstart", "version": "1", "metadata": map[string]any{}}

// at describes a time as the DSL has it (dsl.md, "DateTime Descriptor").
func at(t time.Time) map[string]any {
	t = t.UTC()
	return map[string]any{"iso8601": t.Format(time.RFC3339Nano),
		"epoch": map[string]any{"seconds": int(t.Unix()), "milliseconds": int(t.UnixMilli())}}
}

// random is below most. The same frame of a run has the same: a State is never changed by what it is asked.
func (t *turn) random(f *frame, most time.Duration) time.Duration {
	return time.Duration(rand.New(rand.NewPCG(mix(basis, t.s.run.id), f.place)).Int64N(int64(most)))
}
