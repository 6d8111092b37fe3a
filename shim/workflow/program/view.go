package program

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
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

// eval evaluates an expression of a frame; without one the value stays as it is.
func (t *turn) eval(e *expr, f *frame, v view) (any, error) {
	if e == nil {
		return v.value, nil
	}
	var task, workflow any
	if e.Uses("$task") && f.task != nil {
		task = map[string]any{"name": f.task.name, "reference": f.task.path, "input": f.raw, "output": v.raw, "startedAt": at(f.started)}
	}
	if run := t.s.run; e.Uses("$workflow") {
		workflow = map[string]any{"id": run.id, "input": run.input, "startedAt": at(run.started)}
	}
	values := append([]any{v.context, v.input, v.output, task, workflow, runtime}, f.scope...)
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

// random is below most. The same run has the same: a State is never changed by what it is asked.
func (t *turn) random(most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.s.run.id)) // it has no errors
	return time.Duration(rand.New(rand.NewPCG(h.Sum64(), uint64(t.s.ids))).Int64N(int64(most)))
}
