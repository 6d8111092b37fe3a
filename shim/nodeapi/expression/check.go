package expression

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/itchyny/gojq"
)

// What an evaluation has in its hands stays within the limits of values, so that no single step of it takes long: gojq looks at
// its context between two steps only. So checker has all be bounded that makes a value, and allows nothing whose step can take
// more than its operands' size: assignments and paths (an array has as many elements as its largest index says), definitions,
// loops that do not go through a value, and whatever depends on more than the operands, such as the time.

// The functions that checker puts in. No expression can name them.
const (
	ofValue   = "_headstart_value"
	ofKey     = "_headstart_key"
	ofProduct = "_headstart_product"
	ofSum     = "_headstart_sum"
	ofLess    = "_headstart_difference"
	ofJoin    = "_headstart_join"
	ofWithin  = "_headstart_contains"
	// These two are there before the expression.
	ofInput    = "_headstart_input"
	ofVariable = "_headstart_variable"
)

// A result that is a part of the operand, or small, is as bounded as the operand.
const (
	small = iota // it is
	large        // it may not be
	keyed        // likewise, and the argument makes keys to compare by
	paths        // likewise, and the argument is paths
)

// allowed are the functions by name and number of arguments.
var allowed = map[string]int{
	"not/0": small, "type/0": small, "length/0": small, "utf8bytelength/0": small, "has/1": small, "in/1": small,
	"select/1": small, "empty/0": small, "error/0": small, "error/1": small, "isempty/1": small,
	"all/0": small, "all/1": small, "all/2": small, "any/0": small, "any/1": small, "any/2": small,
	"first/0": small, "last/0": small, "nth/1": small, "first/1": small, "limit/2": small, "getpath/1": small,
	"arrays/0": small, "objects/0": small, "iterables/0": small, "booleans/0": small, "numbers/0": small, "strings/0": small,
	"nulls/0": small, "values/0": small, "scalars/0": small, "min/0": small, "max/0": small,
	"abs/0": small, "floor/0": small, "round/0": small, "ceil/0": small, "sqrt/0": small, "tonumber/0": small,
	"startswith/1": small, "endswith/1": small, "test/1": small, "test/2": small,
	"fromdate/0": small, "todate/0": small, "fromdateiso8601/0": small, "todateiso8601/0": small,
	"ltrimstr/1": small, "rtrimstr/1": small, "ltrim/0": small, "rtrim/0": small, "trim/0": small,
	"ascii_downcase/0": large, "ascii_upcase/0": large, "tostring/0": large, "tojson/0": large, "fromjson/0": large,
	"split/1": large, "split/2": large, "capture/1": large, "keys/0": large, "add/0": large, "reverse/0": large,
	"map/1": large, "map_values/1": large, "with_entries/1": large, "to_entries/0": large, "from_entries/0": large,
	"flatten/0": large, "flatten/1": large, "sort/0": large, "unique/0": large,
	"sort_by/1": keyed, "group_by/1": keyed, "unique_by/1": keyed, "min_by/1": keyed, "max_by/1": keyed,
	"del/1": paths,
}

// replaced are functions of which one step can take more than the size of the operands.
var replaced = map[string]string{"join/1": ofJoin, "contains/1": ofWithin}

// operators are those that are allowed, by the functions that take their places; empty: none has to.
var operators = map[gojq.Operator]string{
	gojq.OpPipe: "", gojq.OpComma: "", gojq.OpDiv: "", gojq.OpMod: "", gojq.OpEq: "", gojq.OpNe: "", gojq.OpGt: "", gojq.OpLt: "",
	gojq.OpGe: "", gojq.OpLe: "", gojq.OpAnd: "", gojq.OpOr: "", gojq.OpAlt: "",
	gojq.OpAdd: ofSum, gojq.OpSub: ofLess, gojq.OpMul: ofProduct,
}

// formats are those that are allowed.
var formats = []string{"@text", "@json", "@uri", "@base64", "@base64d", "@csv", "@tsv", "@html"}

// checker looks at an expression, and has its values be bounded.
type checker struct {
	uses map[string]bool
	err  error
}

func (c *checker) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checker) query(q *gojq.Query) {
	if q == nil || c.err != nil {
		return
	}
	switch {
	case q.Meta != nil || len(q.Imports) > 0:
		c.refuse("has a module, which is not supported")
	case len(q.FuncDefs) > 0:
		c.refuse("defines a function (def), which is not supported")
	case q.Term != nil:
		c.term(q.Term)
	case q.Right != nil:
		instead, ok := operators[q.Op]
		if !ok {
			c.refuse("assigns (%s), which is not supported; use + { name: value } to have another value in an object", q.Op)
		}
		c.query(q.Left)
		c.query(q.Right)
		if instead != "" {
			*q = *call(instead, q.Left, q.Right)
		}
	}
}

func (c *checker) queries(all ...*gojq.Query) {
	for _, q := range all {
		c.query(q)
	}
}

func (c *checker) term(t *gojq.Term) {
	makes := ""
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse:
		c.uses["."] = true
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
	case gojq.TermTypeIndex:
		c.uses["."] = true
		c.index(t.Index)
	case gojq.TermTypeFunc:
		makes = c.function(t.Func)
	case gojq.TermTypeObject:
		makes = ofValue
		for _, kv := range t.Object.KeyVals {
			c.text(kv.KeyString)
			c.queries(kv.KeyQuery, kv.Val)
			if kv.Val == nil { // {name} is {name: .name}, {$name} {name: $name}
				c.uses[shorthand(kv)] = true
			}
		}
	case gojq.TermTypeArray:
		makes = ofValue
		c.query(t.Array.Query)
	case gojq.TermTypeUnary:
		c.term(t.Unary.Term)
	case gojq.TermTypeFormat, gojq.TermTypeString:
		if t.Type == gojq.TermTypeFormat && !slices.Contains(formats, t.Format) {
			c.refuse("has the format %s, which is not supported", t.Format)
		}
		if c.text(t.Str) || t.Type == gojq.TermTypeFormat {
			makes = ofValue
		}
		if t.Type == gojq.TermTypeFormat && t.Str == nil {
			c.uses["."] = true
		}
	case gojq.TermTypeIf:
		c.queries(t.If.Cond, t.If.Then, t.If.Else)
		for _, e := range t.If.Elif {
			c.queries(e.Cond, e.Then)
		}
		if t.If.Else == nil {
			c.uses["."] = true
		}
	case gojq.TermTypeTry:
		c.queries(t.Try.Body, t.Try.Catch)
	case gojq.TermTypeQuery:
		c.query(t.Query)
	default:
		c.refuse("has a loop (reduce, foreach, label), which is not supported; use map, select, add, any or all")
	}
	for _, s := range t.SuffixList {
		c.suffix(s)
	}
	if makes != "" && c.err == nil {
		head := *t
		head.SuffixList = nil
		*t = gojq.Term{Type: gojq.TermTypeQuery, SuffixList: t.SuffixList,
			Query: &gojq.Query{Left: &gojq.Query{Term: &head}, Op: gojq.OpPipe, Right: call(makes)}}
	}
}

// shorthand is what a member of an object without a value uses.
func shorthand(kv *gojq.ObjectKeyVal) string {
	if strings.HasPrefix(kv.Key, "$") {
		return kv.Key
	}
	return "."
}

func (c *checker) index(i *gojq.Index) {
	c.text(i.Str)
	c.queries(i.Start, i.End)
}

func (c *checker) suffix(s *gojq.Suffix) {
	if s.Index != nil {
		c.index(s.Index)
	}
	if s.Bind != nil {
		for _, p := range s.Bind.Patterns {
			c.pattern(p)
		}
		c.query(s.Bind.Body)
	}
}

func (c *checker) pattern(p *gojq.Pattern) {
	if p == nil {
		return
	}
	for _, one := range p.Array {
		c.pattern(one)
	}
	for _, one := range p.Object {
		c.text(one.KeyString)
		c.query(one.KeyQuery)
		c.pattern(one.Val)
	}
}

// text tells whether a string has parts that are computed.
func (c *checker) text(s *gojq.String) bool {
	if s == nil {
		return false
	}
	c.queries(s.Queries...)
	return s.Queries != nil
}

// function tells what is to bound the result of a function; empty: nothing has to.
func (c *checker) function(f *gojq.Func) (makes string) {
	if strings.HasPrefix(f.Name, "$") {
		if f.Name == "$ENV" || f.Name == "$__loc__" {
			c.refuse("uses %s, which is not supported", f.Name)
		}
		c.uses[f.Name] = true
		return ""
	}
	c.uses["."] = true
	name := fmt.Sprintf("%s/%d", f.Name, len(f.Args))
	if instead, is := replaced[name]; is {
		c.queries(f.Args...)
		f.Name = instead
		return ""
	}
	result, ok := allowed[name]
	if !ok {
		c.refuse("calls %s, which is not supported", name)
		return ""
	}
	if result == paths {
		c.path(f.Args[0])
		return ofValue
	}
	c.queries(f.Args...)
	switch result {
	case small:
		return ""
	case keyed:
		f.Args[0] = &gojq.Query{Left: f.Args[0], Op: gojq.OpPipe, Right: call(ofKey)}
	}
	return ofValue
}

// path allows .name, .[index], and such paths in a list.
func (c *checker) path(q *gojq.Query) {
	if q.Op == gojq.OpComma && q.Term == nil {
		c.path(q.Left)
		c.path(q.Right)
		return
	}
	plain := q.Term != nil && q.Term.Type == gojq.TermTypeIndex && fixed(q.Term.Index)
	for i := 0; plain && i < len(q.Term.SuffixList); i++ {
		s := q.Term.SuffixList[i]
		plain = s.Index != nil && fixed(s.Index)
	}
	if !plain {
		c.refuse("deletes what is not named by its path; use del(.name) or del(.first, .second.name)")
	}
}

// fixed tells whether an index says a name.
func fixed(i *gojq.Index) bool {
	return i.Name != "" || i.Str != nil && i.Str.Queries == nil
}

func call(name string, args ...*gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}}}
}

const (
	// keyLimit bounds a key that is sorted or grouped by: keys are compared with each other.
	keyLimit = 1 << 10
	// pairsLimit bounds how many pairs of parts are compared with each other in one step.
	pairsLimit = 1 << 20
	// bitsLimit bounds integers that are multiplied.
	bitsLimit = 1 << 10
)

var functions = []gojq.CompilerOption{
	gojq.WithFunction(ofValue, 0, 0, func(v any, _ []any) any {
		if err := bounded(v); err != nil {
			return err
		}
		return v
	}),
	gojq.WithFunction(ofKey, 0, 0, func(v any, _ []any) any {
		m := measure{}
		if m.add(v, 0); m.size > keyLimit || m.parts > keyLimit {
			return fmt.Errorf("a key to sort or group by is larger than %d bytes", keyLimit)
		}
		return v
	}),
	gojq.WithFunction(ofSum, 2, 2, func(_ any, args []any) any { return within(plus, args[0], args[1]) }),
	gojq.WithFunction(ofLess, 2, 2, func(_ any, args []any) any {
		a, b := measured(args[0]), measured(args[1])
		if _, list := args[0].([]any); list && a.parts*b.parts > pairsLimit {
			return fmt.Errorf("arrays of %d and %d parts are too large for -", a.parts, b.parts)
		}
		return within(minus, args[0], args[1])
	}),
	gojq.WithFunction(ofProduct, 2, 2, func(_ any, args []any) any {
		for _, v := range args {
			if i, is := v.(*big.Int); is && i.BitLen() > bitsLimit {
				return errors.New("the numbers are too large to multiply")
			}
			switch v.(type) {
			case int, float64, *big.Int:
			default:
				return errors.New("only numbers can be multiplied")
			}
		}
		return within(times, args[0], args[1])
	}),
	gojq.WithFunction(ofJoin, 1, 1, func(v any, args []any) any {
		list, separator := measured(v), measured(args[0])
		if list.parts*separator.size > SizeLimit {
			return errLarge
		}
		return within(joined, v, args[0])
	}),
	gojq.WithFunction(ofWithin, 1, 1, func(v any, args []any) any {
		a, b := measured(v), measured(args[0])
		if a.parts*b.parts > pairsLimit {
			return fmt.Errorf("values of %d and %d parts are too large for contains", a.parts, b.parts)
		}
		return within(contains, v, args[0])
	}),
}

func measured(v any) measure {
	m := measure{}
	m.add(v, 0)
	return m
}

// gojq's own meaning of the operators that have replacements.
var plus, minus, times, joined, contains = binary(". + $b"), binary(". - $b"), binary(". * $b"), binary("join($b)"), binary("contains($b)")

// binary returns code with two operands. Few nodes need all of it, and none at once.
func binary(source string) func() code {
	return sync.OnceValue(func() code {
		query, err := gojq.Parse(source)
		if err != nil {
			panic(err)
		}
		c, err := compile(query, []string{"$b"})
		if err != nil {
			panic(err)
		}
		return c
	})
}

// within returns what an operator makes of two values, within the limits of values.
func within(operator func() code, a, b any) any {
	v, ok := operator().run(context.Background(), a, []any{b}).Next()
	if !ok {
		return errors.New("no value")
	}
	if err := bounded(v); err != nil {
		return err
	}
	return v
}
