// Package workflow reads documents of the Serverless Workflow DSL 1.0, and compiles them for nodes (nodeapi.Workflow). What it
// does not know it refuses, by name and place: a workflow never does less than its document says.
package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"
	"github.com/serverlessworkflow/sdk-go/v3/model"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
)

// SizeLimit is the largest document, in bytes of its JSON.
const SizeLimit = 64 << 10

// Error is what is wrong with a document, for its author.
type Error struct {
	// Path is where (JSON pointer, RFC 6901).
	Path string
	What string
}

func (e *Error) Error() string { return "spec" + strings.ReplaceAll(e.Path, "/", ".") + ": " + e.What }

func wrong(path, format string, args ...any) error { return &Error{path, fmt.Sprintf(format, args...)} }

// Compile reads a document (JSON). Its errors are *Error.
func Compile(document []byte) (*nodeapi.Workflow, error) {
	if len(document) > SizeLimit {
		return nil, wrong("", "the document is larger than %d bytes", SizeLimit)
	}
	d := json.NewDecoder(bytes.NewReader(document))
	var raw map[string]any
	if err := d.Decode(&raw); err != nil {
		return nil, wrong("", "the document is no object: %v", err)
	}
	if err := check(raw); err != nil {
		return nil, err
	}
	w := &model.Workflow{}
	if err := json.Unmarshal(document, w); err != nil {
		return nil, wrong("", "%s", said(err))
	}
	if !strings.HasPrefix(w.Document.DSL, "1.") {
		return nil, wrong("/document/dsl", "version %s of the DSL is not supported, but 1.0", w.Document.DSL)
	}
	digest := sha256.Sum256(document)
	c := &compiler{use: w.Use}
	out := &nodeapi.Workflow{Revision: hex.EncodeToString(digest[:8]), Version: w.Document.Version,
		InputFrom: c.input("", w.Input), OutputAs: c.output("", w.Output), Timeout: c.timeout("/timeout", w.Timeout)}
	out.Tasks = c.list("/do", w.Do)
	if c.err == nil {
		c.err = valid(w) // whose words are the model's own
	}
	if c.err != nil {
		return nil, c.err
	}
	return out, nil
}

// valid has the model look at itself. It takes no name of a timeout for one (v3.2.0): whether there is such a one is looked at later.
func valid(w *model.Workflow) error {
	err := model.GetValidator().Struct(w)
	var found validator.ValidationErrors
	if !errors.As(err, &found) {
		return err
	}
	for _, e := range found {
		if e.Tag() == "required_without" && e.StructField() == "Timeout" {
			continue
		}
		_, at, _ := strings.Cut(e.StructNamespace(), ".")
		return wrong("", "%s is not valid: %s %s", at, e.Tag(), e.Param())
	}
	return nil
}

// said is an error of the parser in one line.
func said(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// compiler compiles tasks, and has the first error.
type compiler struct {
	use    *model.Use
	forked bool     // the task is in a branch of a fork
	scope  []string // the variables of the tasks around
	err    error
}

func (c *compiler) fail(path, format string, args ...any) {
	if c.err == nil {
		c.err = wrong(path, format, args...)
	}
}

// checked returns what takes a value, of which an error counts.
func checked[T any](c *compiler, path string) func(v T, err error) T {
	return func(v T, err error) T {
		if err != nil {
			c.fail(path, "%v", err)
		}
		return v
	}
}

func (c *compiler) input(path string, i *model.Input) string {
	if i == nil || i.From == nil {
		return ""
	}
	return c.transform(path+"/input/from", i.From)
}

func (c *compiler) output(path string, o *model.Output) string {
	if o == nil || o.As == nil {
		return ""
	}
	return c.transform(path+"/output/as", o.As)
}

func (c *compiler) transform(path string, o *model.ObjectOrRuntimeExpr) string {
	if e, is := o.Value.(model.RuntimeExpression); is {
		return c.source(path, e.Value)
	}
	return c.value(path, o.Value)
}

// value compiles a value that may have expressions in it.
func (c *compiler) value(path string, v any) string {
	return c.parsed(path, checked[string](c, path)(valueOf(v)))
}

func (c *compiler) expression(path string, e *model.RuntimeExpression) string {
	if e == nil {
		return ""
	}
	return c.source(path, e.Value)
}

// source compiles what is an expression, with or without ${ }; empty: there is none.
func (c *compiler) source(path, s string) string { return c.parsed(path, jq(s)) }

// parsed returns an expression that nodes can evaluate.
func (c *compiler) parsed(path, source string) string {
	if source == "" || c.err != nil {
		return source
	}
	if _, err := expression.Parse(source, slices.Concat(expression.Arguments, c.scope)); err != nil {
		c.fail(path, "%v", err)
	}
	return source
}

// within compiles what can use some more variables.
func (c *compiler) within(variables []string, compile func()) {
	before := c.scope
	c.scope = slices.Concat(before, variables)
	compile()
	c.scope = before
}

func (c *compiler) timeout(path string, t *model.TimeoutOrReference) *durationpb.Duration {
	switch {
	case t == nil:
		return nil
	case t.Timeout != nil:
		return c.duration(path+"/after", t.Timeout.After)
	}
	if c.use == nil || c.use.Timeouts[*t.Reference] == nil {
		c.fail(path, "use.timeouts has no %q", *t.Reference)
		return nil
	}
	return c.duration(path, c.use.Timeouts[*t.Reference].After)
}

func (c *compiler) duration(path string, d *model.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(checked[time.Duration](c, path)(durationOf(d)))
}

func (c *compiler) list(path string, l *model.TaskList) []*nodeapi.Task {
	if l == nil {
		return nil
	}
	var all []*nodeapi.Task
	names := map[string]bool{}
	for i, item := range *l {
		where := fmt.Sprintf("%s/%d/%s", path, i, escape(item.Key))
		if names[item.Key] {
			c.fail(where, "another task of the list has the same name")
		}
		names[item.Key] = true
		all = append(all, c.task(where, item))
	}
	for i, t := range all {
		if to := t.GetThen(); to != "" && to != "exit" && to != "end" && !names[to] {
			c.fail(fmt.Sprintf("%s/%d/%s/then", path, i, escape(t.GetName())), "no task of the list is named %q", to)
		}
		for j, one := range t.GetSwitch().GetCases() {
			if to := one.GetThen(); to != "" && to != "exit" && to != "end" && !names[to] {
				c.fail(fmt.Sprintf("%s/switch/%d/%s/then", t.GetPath(), j, escape(one.GetName())), "no task of the list is named %q", to)
			}
		}
	}
	return all
}

// escape has a name be a part of a JSON pointer.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func directive(f *model.FlowDirective) string {
	if f == nil || f.Value == string(model.FlowDirectiveContinue) {
		return ""
	}
	return f.Value
}

func (c *compiler) task(path string, item *model.TaskItem) *nodeapi.Task {
	base := item.GetBase()
	t := &nodeapi.Task{Name: item.Key, Path: path, Condition: c.expression(path+"/if", base.If), InputFrom: c.input(path, base.Input),
		OutputAs: c.output(path, base.Output), Timeout: c.timeout(path+"/timeout", base.Timeout), Then: directive(base.Then)}
	if base.Export != nil && base.Export.As != nil {
		if c.forked {
			c.fail(path+"/export", "the branches of a fork run at the same time, so they cannot export; export the fork's output")
		}
		t.ExportAs = c.transform(path+"/export/as", base.Export.As)
	}
	switch task := item.Task.(type) {
	case *model.CallHTTP:
		t.Kind = &nodeapi.Task_Call{Call: c.call(path+"/with", &task.With)}
	case *model.DoTask:
		t.Kind = &nodeapi.Task_Do{Do: &nodeapi.TaskList{Tasks: c.list(path+"/do", task.Do)}}
	case *model.SwitchTask:
		t.Kind = &nodeapi.Task_Switch{Switch: c.choose(path+"/switch", task)}
	case *model.ForkTask:
		t.Kind = &nodeapi.Task_Fork{Fork: c.fork(path+"/fork", task)}
	case *model.ForTask:
		t.Kind = &nodeapi.Task_For{For: c.loop(path, task)}
	case *model.SetTask:
		t.Kind = &nodeapi.Task_Set{Set: c.value(path+"/set", task.Set)}
	case *model.TryTask:
		t.Kind = &nodeapi.Task_Try{Try: c.try(path, task)}
	case *model.RaiseTask:
		t.Kind = &nodeapi.Task_Raise{Raise: c.raise(path+"/raise/error", &task.Raise.Error)}
	case *model.WaitTask:
		t.Kind = &nodeapi.Task_Wait{Wait: c.duration(path+"/wait", task.Wait)}
	default:
		c.fail(path, "the task is not supported") // check has named it
	}
	return t
}

func (c *compiler) choose(path string, s *model.SwitchTask) *nodeapi.Switch {
	out := &nodeapi.Switch{}
	for i, item := range s.Switch {
		for name, one := range item { // of which there is one
			where := fmt.Sprintf("%s/%d/%s/when", path, i, escape(name))
			out.Cases = append(out.Cases, &nodeapi.Case{Name: name, When: c.expression(where, one.When), Then: directive(one.Then)})
		}
	}
	for i, one := range out.Cases {
		if one.GetWhen() == "" && i+1 < len(out.Cases) {
			c.fail(fmt.Sprintf("%s/%d", path, i), "a case without when always holds, so it has to be the last one")
		}
	}
	return out
}

func (c *compiler) fork(path string, f *model.ForkTask) *nodeapi.Fork {
	before := c.forked
	c.forked = true
	out := &nodeapi.Fork{Branches: c.list(path+"/branches", f.Fork.Branches), Compete: f.Fork.Compete}
	c.forked = before
	if len(out.GetBranches()) == 0 {
		c.fail(path+"/branches", "a fork has one branch at least")
	}
	for _, b := range out.GetBranches() {
		c.ends(b.GetPath()+"/then", b.GetThen())
		for i, one := range b.GetSwitch().GetCases() {
			c.ends(fmt.Sprintf("%s/switch/%d/%s/then", b.GetPath(), i, escape(one.GetName())), one.GetThen())
		}
	}
	return out
}

// ends refuses to go on with another branch of a fork.
func (c *compiler) ends(path, to string) {
	if to != "" && to != "exit" && to != "end" {
		c.fail(path, "a branch of a fork cannot go on with another one (%q); put its tasks into do", to)
	}
}

func (c *compiler) loop(path string, f *model.ForTask) *nodeapi.For {
	out := &nodeapi.For{Each: c.variable(path+"/for/each", f.For.Each, "item"), At: c.variable(path+"/for/at", f.For.At, "index"),
		In: c.source(path+"/for/in", f.For.In)}
	c.within([]string{out.GetEach(), out.GetAt()}, func() {
		out.While, out.Tasks = c.source(path+"/while", f.While), c.list(path+"/do", f.Do)
	})
	if out.GetEach() == out.GetAt() {
		c.fail(path+"/for", "each and at are the same variable")
	}
	return out
}

// variable is the name of one that expressions can use.
func (c *compiler) variable(path, name, otherwise string) string {
	if name == "" {
		name = otherwise
	}
	if !isVariable(name) {
		c.fail(path, "%q is no name of a variable, or one that expressions have anyway", name)
	}
	return "$" + name
}

func (c *compiler) raise(path string, e *model.RaiseTaskError) string {
	definition := e.Definition
	if e.Ref == nil && definition == nil {
		c.fail(path, "an error, or the name of one in use.errors, is missing")
		return ""
	}
	if e.Ref != nil {
		if c.use != nil {
			definition = c.use.Errors[*e.Ref]
		}
		if definition == nil {
			c.fail(path, "use.errors has no %q", *e.Ref)
			return ""
		}
	}
	fault := map[string]any{"status": definition.Status}
	for name, o := range map[string]model.Object{"type": object(definition.Type), "title": object(definition.Title),
		"detail": object(definition.Detail), "instance": object(definition.Instance)} {
		if o != nil {
			fault[name] = o.String()
		}
	}
	return c.value(path, fault)
}

// object is nil for a pointer that is.
func object[T any, P interface {
	*T
	model.Object
}](p P) model.Object {
	if p == nil {
		return nil
	}
	return p
}
