// Package expression has the expressions of workflows: jq (gojq), as far as their time and their values can be bounded. A
// workflow's author is a tenant, and the daemon that evaluates belongs to all of them.
package expression

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"
)

const (
	// SourceLimit is the largest expression in bytes.
	SourceLimit = 32 << 10
	// TimeLimit is how much of a processor's time one evaluation may take. An expression of a few operators takes some microseconds.
	TimeLimit = 100 * time.Millisecond
)

// Arguments are the variables that all expressions of a workflow may use, in the order of their values.
var Arguments = []string{"$context", "$input", "$output", "$task", "$workflow", "$runtime"}

// Expression is an expression that can be evaluated. Its methods may be called at the same time.
type Expression struct {
	code      code
	variables []string
	uses      map[string]bool
}

// Parse reads an expression, which may use these variables ("$name"). Its errors are for the workflow's author.
func Parse(source string, variables []string) (*Expression, error) {
	if len(source) > SourceLimit {
		return nil, fmt.Errorf("the expression is longer than %d bytes", SourceLimit)
	}
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("the expression %q is not valid jq: %w", shortened(source), err)
	}
	c := &checker{uses: map[string]bool{}}
	c.query(query)
	if c.err != nil {
		return nil, fmt.Errorf("the expression %q %w", shortened(source), c.err)
	}
	code, err := compile(query, variables, functions...)
	if err != nil {
		return nil, fmt.Errorf("the expression %q cannot be used here: %w", shortened(source), err)
	}
	return &Expression{code: code, variables: variables, uses: c.uses}, nil
}

// shortened is as much of a source as an error repeats.
func shortened(source string) string {
	const most = 100
	if len(source) > most {
		return source[:most] + "..."
	}
	return source
}

// Uses tells whether the expression refers to a variable ("$name"), or to its input (".").
func (e *Expression) Uses(name string) bool { return e.uses[name] }

// Needs tells whether the expression refers to something of which is holds: its input, or the values of variables.
func (e *Expression) Needs(is func(any) bool, input any, values ...any) bool {
	if e.uses["."] && is(input) {
		return true
	}
	for i, name := range e.variables {
		if e.uses[name] && is(values[i]) {
			return true
		}
	}
	return false
}

// Eval returns what the expression makes of its input and the variables' values, in their order. All of them are values of
// JSON as Decode returns them. They are not changed, and the result may share parts with them. The expression has to yield one
// value.
func (e *Expression) Eval(ctx context.Context, input any, values ...any) (any, error) {
	ctx, stop := limit(ctx)
	defer stop()
	results := e.code.run(ctx, input, values)
	value, ok := results.Next()
	if !ok {
		return nil, errors.New("the expression yields no value")
	}
	if err, failed := value.(error); failed {
		return nil, explain(ctx, err)
	}
	if second, more := results.Next(); more {
		if err, failed := second.(error); failed {
			return nil, explain(ctx, err)
		}
		return nil, errors.New("the expression yields more than one value; put it into [ ] to have them in an array")
	}
	if err := bounded(value); err != nil {
		return nil, err
	}
	return value, nil
}

func explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the expression takes longer than %s", TimeLimit)
	}
	if halt, is := errors.AsType[*gojq.HaltError](err); is {
		err = halt
	}
	return fmt.Errorf("the expression fails: %w", err)
}
