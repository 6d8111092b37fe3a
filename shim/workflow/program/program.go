// Package program runs a workflow, without doing anything by itself: a State says which calls and waits come next, and each
// answer makes another State of it. States are never changed, so one who guesses an answer goes on from a State, and comes
// back to it when the guess was wrong.
//
// What each step means says the Serverless Workflow DSL 1.0 (dsl.md, "Task Flow", "Data Flow", "Fault Tolerance").
package program

import (
	"fmt"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
)

// Where a task goes on, beside the tasks of its list.
const (
	thenExit = "exit"
	thenEnd  = "end"
)

// Program is a workflow that can be run.
type Program struct {
	revision, version string
	name              string
	from, as          *expression.Expression
	timeout           time.Duration
	tasks             list
}

// list are tasks that follow each other.
type list []*task

// task is a step. What it does is one of its last fields.
type task struct {
	name, path                           string
	at                                   int // in its list
	condition, from, as, export, subject *expression.Expression
	timeout                              time.Duration
	then                                 then

	call  *nodeapi.Call // subject yields the request
	set   bool          // subject yields the output
	raise bool          // subject yields the error
	wait  *time.Duration
	do    *list
	cases []choice // nil: it is no switch
	fork  *fork
	loop  *loop // subject yields what it goes through
	try   *try
}

// then is what follows: the task of the list at to, unless the list, or the run, ends.
type then struct {
	to        int
	exit, end bool
}

type choice struct {
	when *expression.Expression // nil: it always holds
	then then
}

type fork struct {
	branches list
	compete  bool
}

type loop struct {
	while *expression.Expression
	tasks list
}

type try struct {
	tasks, catch     list
	catches          bool
	with             *nodeapi.ErrorFilter
	when, exceptWhen *expression.Expression
	retry            *retry
}

type retry struct {
	*nodeapi.Retry
	when, exceptWhen *expression.Expression
}

// New compiles a workflow. Its errors name the task.
func New(name string, w *nodeapi.Workflow) (*Program, error) {
	c := &compiler{}
	p := &Program{name: name, revision: w.GetRevision(), version: w.GetVersion(), timeout: w.GetTimeout().AsDuration()}
	p.from, p.as = c.expression("/input/from", w.GetInputFrom()), c.expression("/output/as", w.GetOutputAs())
	p.tasks = c.list(w.GetTasks())
	if c.err == nil && len(p.tasks) == 0 {
		c.err = fmt.Errorf("/do: a workflow has one task at least")
	}
	return p, c.err
}

// Revision is the digest of the document.
func (p *Program) Revision() string { return p.revision }

// compiler has the first error, and the variables of the tasks around.
type compiler struct {
	scope []string
	err   error
}

func (c *compiler) fail(path, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
	}
}

func (c *compiler) expression(path, source string) *expression.Expression {
	if source == "" || c.err != nil {
		return nil
	}
	e, err := expression.Parse(source, slices.Concat(expression.Arguments, c.scope))
	if err != nil {
		c.fail(path, "%w", err)
	}
	return e
}

// with compiles what can use some more variables.
func (c *compiler) with(variables []string, compile func()) {
	before := c.scope
	c.scope = slices.Concat(before, variables)
	compile()
	c.scope = before
}

func (c *compiler) list(tasks []*nodeapi.Task) list {
	names := make(map[string]int, len(tasks))
	for i, t := range tasks {
		if _, twice := names[t.GetName()]; twice {
			c.fail(t.GetPath(), "another task of the list is named %q, too", t.GetName())
		}
		names[t.GetName()] = i
	}
	all := make(list, len(tasks))
	for i, t := range tasks {
		all[i] = c.task(t, i, names)
	}
	return all
}

func (c *compiler) then(path, s string, next int, names map[string]int) then {
	switch s {
	case "":
		return then{to: next}
	case thenExit:
		return then{exit: true}
	case thenEnd:
		return then{end: true}
	}
	to, known := names[s]
	if !known {
		c.fail(path, "no task of the list is named %q", s)
	}
	return then{to: to}
}

func (c *compiler) task(t *nodeapi.Task, at int, names map[string]int) *task {
	path := t.GetPath()
	out := &task{name: t.GetName(), path: path, at: at, timeout: t.GetTimeout().AsDuration()}
	out.condition = c.expression(path+"/if", t.GetCondition())
	out.from, out.as = c.expression(path+"/input/from", t.GetInputFrom()), c.expression(path+"/output/as", t.GetOutputAs())
	out.export = c.expression(path+"/export/as", t.GetExportAs())
	out.then = c.then(path+"/then", t.GetThen(), at+1, names)
	subject := func(key, source string) {
		if source == "" {
			c.fail(path+key, "an expression is missing")
		}
		out.subject = c.expression(path+key, source)
	}
	switch kind := t.GetKind().(type) {
	case *nodeapi.Task_Call:
		out.call = kind.Call
		subject("/with", kind.Call.GetRequest())
	case *nodeapi.Task_Set:
		out.set = true
		subject("/set", kind.Set)
	case *nodeapi.Task_Raise:
		out.raise = true
		subject("/raise/error", kind.Raise)
	case *nodeapi.Task_Wait:
		d := kind.Wait.AsDuration()
		out.wait = &d
	case *nodeapi.Task_Do:
		tasks := c.list(kind.Do.GetTasks())
		out.do = &tasks
	case *nodeapi.Task_Switch:
		out.cases = []choice{}
		for i, one := range kind.Switch.GetCases() {
			where := fmt.Sprintf("%s/switch/%d/%s", path, i, one.GetName())
			out.cases = append(out.cases, choice{c.expression(where+"/when", one.GetWhen()),
				c.then(where+"/then", one.GetThen(), at+1, names)})
		}
	case *nodeapi.Task_Fork:
		out.fork = &fork{compete: kind.Fork.GetCompete(), branches: c.list(kind.Fork.GetBranches())}
		if len(out.fork.branches) == 0 {
			c.fail(path+"/fork/branches", "a fork has one branch at least")
		}
	case *nodeapi.Task_For:
		f := kind.For
		subject("/for/in", f.GetIn())
		c.with([]string{f.GetEach(), f.GetAt()}, func() {
			out.loop = &loop{while: c.expression(path+"/while", f.GetWhile()), tasks: c.list(f.GetTasks())}
		})
	case *nodeapi.Task_Try:
		out.try = c.try(path, kind.Try)
	default:
		c.fail(path, "this node does not know what the task does; it is older than the control plane")
	}
	return out
}

func (c *compiler) try(path string, t *nodeapi.Try) *try {
	out := &try{with: t.GetWith(), catches: t.GetCatches(), tasks: c.list(t.GetTasks())}
	c.with([]string{t.GetAs()}, func() {
		out.when, out.exceptWhen = c.expression(path+"/catch/when", t.GetWhen()), c.expression(path+"/catch/exceptWhen", t.GetExceptWhen())
		if r := t.GetRetry(); r != nil {
			where := path + "/catch/retry"
			out.retry = &retry{r, c.expression(where+"/when", r.GetWhen()), c.expression(where+"/exceptWhen", r.GetExceptWhen())}
		}
		out.catch = c.list(t.GetCatch())
	})
	return out
}
