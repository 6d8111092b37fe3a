// Package workflow has workflows as their authors write them, from the document to the calls.
package workflow

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/workflow"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const head = `
document: { dsl: '1.0.0', namespace: shop, name: test, version: '1.0.0' }
`

func compile(t testing.TB, document string) *program.Program {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(head + document))
	if err != nil {
		t.Fatal(err)
	}
	w, err := workflow.Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	p, err := program.New("shop/test", w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// servers answer calls by their method and URL: with JSON, or with a status.
type servers map[string]func(body string, times int) program.Answer

func says(json string) func(string, int) program.Answer {
	return func(string, int) program.Answer { return answer(http.StatusOK, json) }
}

func fails(status int) func(string, int) program.Answer {
	return func(string, int) program.Answer { return answer(status, "") }
}

func answer(status int, json string) program.Answer {
	return program.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(json)}
}

// echo answers with what it got.
func echo(body string, _ int) program.Answer { return answer(http.StatusOK, body) }

// finish runs a program to its end, where nothing takes time but waits. asked are the calls in their order.
func finish(t testing.TB, p *program.Program, input string, of servers) (output string, fault *program.Fault, asked []string, took time.Duration) {
	t.Helper()
	v, err := expression.Decode([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1_700_000_000, 0)
	now, times := began, map[string]int{}
	for state := p.Start("run", v, now); ; {
		if out, fault, ended := state.Ended(); ended {
			text, err := expression.Encode(out)
			if err != nil {
				t.Fatal(err)
			}
			return string(text), fault, asked, now.Sub(began)
		}
		called := false
		for _, step := range state.Open() {
			if step.Request == nil {
				continue
			}
			call := step.Request.Method + " " + step.Request.URL.String()
			serve := of[call]
			if serve == nil {
				t.Fatalf("%s: nobody answers %s", step.Task, call)
			}
			asked = append(asked, call)
			times[call]++
			got := serve(string(step.Request.Body), times[call])
			if got.Status == 0 && got.Err == nil {
				continue // no answer
			}
			state, called = state.Answer(step.ID, got, now), true
			break
		}
		if called {
			continue
		}
		at := state.Deadline()
		if at.IsZero() {
			t.Fatal("the run waits for nothing")
		}
		if at.After(now) {
			now = at
		}
		state = state.Elapse(now)
	}
}

// What a document says is what happens.
func TestDocuments(t *testing.T) {
	const a = "GET http://a.shop/"
	for name, c := range map[string]struct {
		document, input string
		of              servers
		want            string // output, or type and instance of the fault
		asked           []string
		took            time.Duration
	}{
		"tasks follow each other": {
			document: `
do:
  - red: { set: { colors: '${ .colors + ["red"] }' } }
  - green: { set: { colors: '${ .colors + ["green"] }' } }
`,
			want: `{"colors":["red","green"]}`},
		"then names the next one": {
			document: `
do:
  - first: { set: { 'n': [1] }, then: third }
  - second: { set: { 'n': '${ .n + [2] }' }, then: end }
  - third: { set: { 'n': '${ .n + [3] }' }, then: second }
`,
			want: `{"n":[1,3,2]}`},
		"exit leaves the list, end the workflow": {
			document: `
do:
  - outer:
      do:
        - one: { set: { 'n': 1 }, then: exit }
        - two: { set: { 'n': 2 } }
  - after: { set: { 'n': '${ .n + 10 }' }, then: end }
  - never: { set: { 'n': 0 } }
output: { as: '{ result: .n }' }
`,
			want: `{"result":11}`},
		"data flows as it is transformed": {
			document: `
input: { from: .order }
do:
  - one:
      input: { from: .items }
      set: { count: '${ length }', was: '${ $input }' }
      output: { as: '{ count }' }
      export: { as: '{ counted: $output.count, before: $context.id, of: $task.name, raw: $task.output.was, asked: $workflow.input.order.id }' }
  - two: { set: { all: '${ $context }', last: '${ . }' } }
`,
			input: `{"order":{"id":7,"items":["a","b"]}}`,
			want:  `{"all":{"asked":7,"before":7,"counted":2,"of":"one","raw":["a","b"]},"last":{"count":2}}`},
		"a task whose condition does not hold is passed over": {
			document: `
do:
  - one: { if: .n > 5, set: { 'n': 0 }, then: end }
  - two: { if: '${ .n < 5 }', set: { 'n': '${ .n + 1 }' } }
`,
			input: `{"n":3}`, want: `{"n":4}`},
		"a call sends what it says": {
			document: `
do:
  - get:
      call: http
      with:
        method: post
        endpoint: http://b.shop/pets/{id}/toys
        query: { page: 2, tag: '${ .tags }' }
        headers: { x-kind: '${ .kind }' }
        body: { name: '${ .name }', fixed: [1, true, null, "text"] }
`,
			input: `{"id":"a/b","tags":["x","y z"],"kind":"dog","name":"Rex"}`,
			of:    servers{"POST http://b.shop/pets/a%2Fb/toys?page=2&tag=x&tag=y+z": echo},
			want:  `{"fixed":[1,true,null,"text"],"name":"Rex"}`},
		"the output is the content, or the response": {
			document: `
do:
  - one: { call: http, with: { method: get, endpoint: { uri: 'http://a.shop/' }, output: response }, output: { as: '{ s: .statusCode, c: .content }' } }
  - two: { call: http, with: { method: get, endpoint: '${ "http://a.shop/" }', output: raw }, output: { as: '{ raw: . }' } }
`,
			of: servers{a: says(`{"n":1}`)}, want: `{"raw":"eyJuIjoxfQ=="}`, asked: []string{a, a}},
		"a switch takes the first case that holds": {
			document: `
do:
  - which:
      switch:
        - high: { when: .n > 10, then: high }
        - low: { when: '${ .n < 5 }', then: low }
        - other: { then: end }
  - high: { set: { is: high }, then: end }
  - low: { set: { is: low } }
`,
			input: `{"n":3}`, want: `{"is":"low"}`},
		"for goes through an array": {
			document: `
do:
  - loop:
      for: { each: color, in: .colors, at: i }
      while: (.seen | length // 0) < 2
      do:
        - mark: { set: { seen: '${ .seen + [{ c: $color, i: $i }] }' } }
`,
			input: `{"colors":["red","green","blue"]}`,
			want:  `{"seen":[{"c":"red","i":0},{"c":"green","i":1}]}`},
		"the branches of a fork run at the same time": {
			document: `
do:
  - both:
      fork:
        branches:
          - slow: { do: [ { wait: { wait: { seconds: 2 } } }, { a: { call: http, with: { method: get, endpoint: 'http://a.shop/' } } } ] }
          - fast: { wait: PT1S, output: { as: '"fast"' } }
`,
			of: servers{a: says(`"slow"`)}, want: `["slow","fast"]`, asked: []string{a}, took: 2 * time.Second},
		"the first branch of those that compete counts": {
			document: `
do:
  - race:
      fork:
        compete: true
        branches:
          - slow: { wait: { seconds: 2 } }
          - fast: { wait: { milliseconds: 500 }, output: { as: '"fast"' } }
`,
			want: `"fast"`, took: 500 * time.Millisecond},
		"an error is caught": {
			document: `
do:
  - try:
      try:
        - get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } }
      catch:
        errors: { with: { type: https://serverlessworkflow.io/spec/1.0.0/errors/communication, status: 404 } }
        as: err
        when: $err.status != 500
        do:
          - handle: { set: { error: '${ $err.status }', at: '${ $err.instance }' } }
`,
			of: servers{a: fails(404)}, want: `{"at":"/do/0/try/try/0/get","error":404}`},
		"an error that is caught without more is over": {
			document: `
do:
  - try: { try: [ { get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } } } ], catch: {} }
`,
			input: `{"n":1}`, of: servers{a: fails(500)}, want: `{"n":1}`},
		"another error is not": {
			document: `
do:
  - try:
      try: [ { get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } } } ]
      catch: { errors: { with: { status: 404 } } }
`,
			of: servers{a: fails(503)}, want: program.Communication + " /do/0/try/try/0/get 503"},
		"it is tried again, at growing intervals": {
			document: `
use: { retries: { often: { delay: { seconds: 1 }, backoff: { exponential: {} }, limit: { attempt: { count: 3 } } } } }
do:
  - try:
      try: [ { get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } } } ]
      catch: { retry: often }
`,
			of: servers{a: func(_ string, times int) program.Answer {
				if times < 4 {
					return answer(503, "")
				}
				return answer(200, `"at last"`)
			}},
			want: `"at last"`, asked: []string{a, a, a, a}, took: 7 * time.Second},
		"retries end": {
			document: `
do:
  - try:
      try: [ { get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } } } ]
      catch: { retry: { delay: PT1S, limit: { attempt: { count: 2 } } } }
`,
			of: servers{a: fails(503)}, want: program.Communication + " /do/0/try/try/0/get 503", asked: []string{a, a, a}, took: 2 * time.Second},
		"an error is raised": {
			document: `
use: { errors: { gone: { type: https://shop.example/gone, status: 410, title: Gone, detail: '${ "no " + .what }' } } }
do:
  - say: { raise: { error: gone } }
`,
			input: `{"what":"dog"}`, want: "https://shop.example/gone /do/0/say 410"},
		"a branch that fails fails the fork": {
			document: `
do:
  - both:
      fork:
        branches:
          - a: { call: http, with: { method: get, endpoint: 'http://a.shop/' } }
          - b: { wait: { hours: 1 } }
`,
			of: servers{a: fails(500)}, want: program.Communication + " /do/0/both/fork/branches/0/a 500"},
		"a task has its timeout": {
			document: `
do:
  - try:
      try:
        - slow: { timeout: { after: PT3S }, do: [ { wait: { wait: { minutes: 1 } } } ] }
      catch: { do: [ { late: { set: { status: '${ $error.status }' } } } ] }
`,
			want: `{"status":408}`, took: 3 * time.Second},
		"the workflow has its timeout": {
			document: `
timeout: { after: { seconds: 5 } }
do:
  - get: { call: http, with: { method: get, endpoint: 'http://a.shop/' } }
`,
			of: servers{a: fails(0)}, want: program.Timeout + "  408", asked: []string{a}, took: 5 * time.Second},
		"a run in circles ends": {
			document: `
do:
  - one: { set: { 'n': 1 }, then: two }
  - two: { set: { 'n': 2 }, then: one }
`,
			want: program.Runtime + " /do/0/one 500"},
		"ten thousand times": {
			document: `
do:
  - loop: { for: { in: '${ .all }' }, do: [ { one: { set: { sum: '${ (.sum // 0) + $item }' } } } ] }
`,
			input: `{"all":[` + strings.TrimSuffix(strings.Repeat("1,", 10_000), ",") + `]}`, want: `{"sum":10000}`},
	} {
		t.Run(name, func(t *testing.T) {
			input := c.input
			if input == "" {
				input = "{}"
			}
			output, fault, asked, took := finish(t, compile(t, c.document), input, c.of)
			if fault != nil {
				output = fmt.Sprintf("%s %s %d", fault.Type, fault.Instance, fault.Status)
			}
			if output != c.want {
				t.Errorf("it comes to %s, want %s; %v", output, c.want, fault)
			}
			if c.asked != nil && strings.Join(asked, ", ") != strings.Join(c.asked, ", ") {
				t.Errorf("it asks %q", asked)
			}
			if took != c.took {
				t.Errorf("it takes %s, want %s", took, c.took)
			}
		})
	}
}

// guessed are the guesses of a test: cases of one switch, and answers of hosts.
type guessed struct {
	chosen  int // below 0: nobody knows
	answers map[string]string
}

func (g guessed) Case(task string, _ uint64) (int, bool) {
	return g.chosen, g.chosen >= 0 && task == "/do/2/which"
}

func (g guessed) Answer(s *program.Step) (program.Answer, bool) {
	json, known := g.answers[s.Host]
	return answer(http.StatusOK, json), known
}

// What comes next is known as far as the document says it, and beyond a switch as far as it is guessed. Requests are known as far as
// answers are.
func TestAhead(t *testing.T) {
	p := compile(t, `
do:
  - a: { call: http, with: { method: get, endpoint: 'http://a.shop/{x}' } }
  - all:
      fork:
        branches:
          - b: { do: [ { b1: { call: http, with: { method: get, endpoint: 'http://b.shop' } } }, { b2: { call: http, with: { method: get, endpoint: '${ .url }' } } } ] }
          - c: { for: { in: '[1]' }, do: [ { c1: { call: http, with: { method: get, endpoint: { uri: 'http://c.shop:80/' } } } } ] }
  - which: { switch: [ { x: { when: .n, then: e } }, { y: { when: .m, then: end } } ] }
  - d: { try: [ { d1: { call: http, with: { method: get, endpoint: 'http://d.shop/' } } } ], catch: {} }
  - e: { call: http, with: { method: get, endpoint: 'http://e.shop/', query: { id: '${ $workflow.input.n }' } } }
  - f: { wait: PT1S }
  - g: { call: http, with: { method: get, endpoint: 'http://g.shop/' }, then: a }
`)
	ahead := func(s *program.State, g guessed, most int) string {
		var all []string
		for _, step := range s.Ahead(g, most, time.Now()) {
			what := step.Host
			if step.Request != nil {
				what = step.Request.URL.String()
			}
			if step.Later {
				what += "(later)"
			}
			all = append(all, what)
		}
		return strings.Join(all, " ")
	}
	state := p.Start("run", map[string]any{"n": 1}, time.Now())
	some := map[string]string{"a.shop": `{}`, "b.shop": `{"url":"http://x.shop/"}`}
	for _, c := range []struct {
		guessed
		want string
	}{
		{guessed{-1, nil}, "http://b.shop http://c.shop:80/ "},
		{guessed{0, nil}, "http://b.shop http://c.shop:80/  http://e.shop/?id=1 http://g.shop/(later) a.shop(later) http://b.shop(later) http://c.shop:80/(later)"},
		{guessed{1, nil}, "http://b.shop http://c.shop:80/ "},
		{guessed{2, nil}, "http://b.shop http://c.shop:80/  http://d.shop/ http://e.shop/?id=1 http://g.shop/(later) a.shop(later) http://b.shop(later)"},
		{guessed{-1, some}, "http://b.shop http://c.shop:80/ http://x.shop/"},
		{guessed{-1, map[string]string{"b.shop": `{"url":"no URL"}`}}, "http://b.shop http://c.shop:80/"},
	} {
		if got := ahead(state, c.guessed, 8); got != c.want {
			t.Errorf("with %v: %q, want %q", c.guessed, got, c.want)
		}
	}
	before := state
	state = state.Answer(state.Open()[0].ID, answer(200, `{"n":true,"url":"http://x.shop"}`), time.Now())
	if got := ahead(state, guessed{2, nil}, 3); got != " http://d.shop/ http://e.shop/?id=1" {
		t.Errorf("within a fork: %q", got)
	}
	// A step has the same name in each state, whatever else has happened.
	names := map[string]uint64{}
	for _, step := range before.Ahead(guessed{-1, some}, 8, time.Now()) {
		names[step.Task] = step.ID
	}
	for _, step := range state.Open() {
		if names[step.Task] != step.ID {
			t.Errorf("%s was looked at as %d, and is %d", step.Task, names[step.Task], step.ID)
		}
	}
}

// A state is never changed: one who has guessed an answer goes back, and finds all as it was.
func TestStatesAreNotChanged(t *testing.T) {
	p := compile(t, `
do:
  - all:
      for: { in: '[1, 2, 3]' }
      do:
        - both:
            fork:
              branches:
                - one: { call: http, with: { method: get, endpoint: 'http://a.shop/{n}' } }
                - two: { try: [ { get: { call: http, with: { method: get, endpoint: 'http://b.shop/' } } } ], catch: { retry: { delay: PT1S, limit: { attempt: { count: 2 } } } } }
            output: { as: '{ "n": (map(.n) | add) }' }
            export: { as: '[$context, $output]' }
`)
	input, err := expression.Decode([]byte(`{"n":0}`))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(0, 0)
	steps := func(s *program.State) (all []string) {
		for _, step := range s.Open() {
			all = append(all, fmt.Sprint(step.ID, step.Task, step.Request, step.Until))
		}
		return append(all, fmt.Sprint(s.Ended()))
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		state := p.Start("run", input, began)
		for now := began; ; {
			before := steps(state)
			if _, _, ended := state.Ended(); ended {
				break
			}
			next := func(status int) *program.State {
				open := state.Open()
				step := open[r.IntN(len(open))]
				if step.Request == nil {
					return state.Elapse(state.Deadline())
				}
				return state.Answer(step.ID, answer(status, `{"n":1}`), now)
			}
			for range 3 {
				_ = next(200 + 300*r.IntN(2))
			}
			if after := steps(state); !slices.Equal(before, after) {
				t.Fatalf("seed %d: %q becomes %q", seed, before, after)
			}
			state = next(200 + 300*r.IntN(2))
		}
	}
}
