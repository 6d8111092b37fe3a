package expression

import (
	"context"
	"slices"
	"strconv"

	"github.com/itchyny/gojq"
)

// code is compiled jq. What it is run with may be in use elsewhere at the same time, and is as large as it likes. gojq itself
// writes every part of its arguments again before it runs, to have numbers in a form that Decode gives them already. So they
// are behind one value that means nothing to it, and functions bring them.
type code struct{ compiled *gojq.Code }

type arguments struct {
	input  any
	values []any
}

var bringing = []gojq.CompilerOption{
	gojq.WithEnvironLoader(nil),
	gojq.WithFunction(ofInput, 0, 0, func(v any, _ []any) any { return v.(*arguments).input }),
	gojq.WithFunction(ofVariable, 1, 1, func(v any, at []any) any { return v.(*arguments).values[at[0].(int)] }),
}

// compile has a query be run with values for these variables.
func compile(query *gojq.Query, variables []string, options ...gojq.CompilerOption) (code, error) {
	all := &gojq.Query{Left: call(ofInput), Op: gojq.OpPipe, Right: query}
	for i := len(variables) - 1; i >= 0; i-- {
		index := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeNumber, Number: strconv.Itoa(i)}}
		bound := call(ofVariable, index)
		bound.Term.SuffixList = []*gojq.Suffix{{Bind: &gojq.Bind{Patterns: []*gojq.Pattern{{Name: variables[i]}}, Body: all}}}
		all = bound
	}
	compiled, err := gojq.Compile(all, slices.Concat(bringing, options)...)
	return code{compiled}, err
}

// run has a value for each variable.
func (c code) run(ctx context.Context, input any, values []any) gojq.Iter {
	return c.compiled.RunWithContext(ctx, &arguments{input, values})
}
