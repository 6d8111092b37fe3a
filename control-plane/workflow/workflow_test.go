package workflow

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const head = `
document: { dsl: '1.0.0', namespace: shop, name: test, version: '1.0.0' }
`

func compiled(t testing.TB, document string) error {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	w, err := Compile(b)
	if err == nil && len(w.GetTasks()) == 0 {
		t.Errorf("it is compiled to nothing: %s", document)
	}
	return err
}

// What is not supported is refused, and the error says where and what.
func TestRefused(t *testing.T) {
	const get = `call: http, with: { method: get, endpoint: 'http://a.shop/' }`
	for document, want := range map[string]string{
		`do: []`:                       "spec",
		`do: { a: { set: { n: 1 } } }`: "spec.do: tasks are a list",
		`do: [ { a: { set: { n: 1 } }, b: { set: { n: 1 } } } ]`:                                                           "spec.do.0: a task of a list has one name",
		`do: [ { a: { emit: { event: {} } } } ]`:                                                                           `spec.do.0.a.emit: "emit" is not supported`,
		`do: [ { a: { listen: { to: {} } } } ]`:                                                                            `spec.do.0.a.listen: "listen" is not supported`,
		`do: [ { a: { run: { shell: { command: ls } } } } ]`:                                                               `spec.do.0.a.run: "run" is not supported`,
		`do: [ { a: { call: grpc, with: {} } } ]`:                                                                          "spec.do.0.a.call: calls of grpc are not supported",
		`do: [ { a: { call: http, with: { method: get, endpoint: { uri: 'http://a/', authentication: x } } } } ]`:          `spec.do.0.a.with.endpoint.authentication: "authentication" is not supported`,
		`do: [ { a: { call: http, with: { method: brew, endpoint: 'http://a/' } } } ]`:                                     "Method",
		`do: [ { a: { call: http, with: { method: get, endpoint: 'http://a/{?x}' } } } ]`:                                  "spec.do.0.a.with.endpoint: {?x} is not supported",
		`do: [ { a: { set: { n: 1 }, call: http } } ]`:                                                                     "spec.do.0.a: the task has both call and set",
		`do: [ { a: { input: { schema: { document: {} } }, set: { n: 1 } } } ]`:                                            `spec.do.0.a.input.schema: "schema" is not supported`,
		`do: [ { a: { set: { n: 'a ${ .b }' } } } ]`:                                                                       "make all of it one",
		`do: [ { a: { set: { n: 1 }, then: b } } ]`:                                                                        `spec.do.0.a.then: no task of the list is named "b"`,
		`do: [ { a: { switch: [ { x: { when: .n, then: b } } ] } } ]`:                                                      `spec.do.0.a.switch.0.x.then: no task of the list is named "b"`,
		`do: [ { a: { switch: [ { x: { then: end } }, { y: { when: .n, then: end } } ] } } ]`:                              "so it has to be the last one",
		`do: [ { a: { set: { n: 1 } } }, { a: { set: { n: 1 } } } ]`:                                                       "spec.do.1.a: another task of the list has the same name",
		`do: [ { a: { fork: { branches: [ { b: { set: { n: 1 }, export: { as: . } } } ] } } } ]`:                           "cannot export",
		`do: [ { a: { fork: { branches: [ { b: { set: { n: 1 }, then: c } }, { c: { set: { n: 1 } } } ] } } } ]`:           "cannot go on with another one",
		`do: [ { a: { raise: { error: nothing } } } ]`:                                                                     `use.errors has no "nothing"`,
		`do: [ { a: { timeout: never, set: { n: 1 } } } ]`:                                                                 `use.timeouts has no "never"`,
		`do: [ { a: { timeout: { after: P1Y }, set: { n: 1 } } } ]`:                                                        `"P1Y" is no duration`,
		`do: [ { a: { try: [ { b: { ` + get + ` } } ], catch: { retry: { limit: {} } } } } ]`:                              "have no end and no delay",
		`do: [ { a: { try: [ { b: { ` + get + ` } } ], catch: { retry: { limit: { attempt: { duration: PT1S } } } } } } ]`: `"duration" is not supported`,
		`do: [ { a: { for: { in: .x, each: input }, do: [ { b: { ` + get + ` } } ] } } ]`:                                  "no name of a variable",
		`do: [ { a: { if: 'reduce .[] as $x (0; . + $x)', set: { a: 1 } } } ]`:                                             "spec.do.0.a.if: the expression",
		`do: [ { a: { set: { a: '${ $nobody }' } } } ]`:                                                                    "spec.do.0.a.set: the expression",
		`do: [ { a: { switch: [ { x: { when: now > 3, then: end } } ] } } ]`:                                               "spec.do.0.a.switch.0.x.when: the expression",
		`do: [ { a: { for: { in: .x, each: e }, do: [ { b: { set: { a: '${ $item }' } } } ] } } ]`:                         "spec.do.0.a.do.0.b.set: the expression",
		`do: [ { a: { try: [ { b: { set: { a: '${ $error }' } } } ], catch: {} } } ]`:                                      "spec.do.0.a.try.0.b.set: the expression",
		`{ schedule: { every: PT1M }, do: [ { a: { set: { n: 1 } } } ] }`:                                                  `spec.schedule: "schedule" is not supported`,
		`{ use: { secrets: [ a ] }, do: [ { a: { set: { n: 1 } } } ] }`:                                                    `spec.use.secrets: "secrets" is not supported`,
		`{ evaluate: { mode: loose }, do: [ { a: { set: { n: 1 } } } ] }`:                                                  `spec.evaluate: "evaluate" is not supported`,
	} {
		var all string
		if rest, flow := strings.CutPrefix(document, "{ "); flow {
			all = `{ document: { dsl: '1.0.0', namespace: shop, name: test, version: '1.0.0' }, ` + rest
		} else {
			all = head + document
		}
		if err := compiled(t, all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", document, err, want)
		}
	}
	for _, document := range []string{"{}", "do: [ { a: { set: { n: 1 } } } ]", strings.Replace(head, "1.0.0", "2.0.0", 1) + "do: [ { a: { set: { n: 1 } } } ]"} {
		if err := compiled(t, document); err == nil {
			t.Errorf("%s is taken", document)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"document":{"dsl":"1.0.0","namespace":"a","name":"b","version":"1.0.0"},"do":[{"a":{"set":{"n":"${ .x }"}}}]}`))
	f.Add([]byte(`{"document":{"dsl":"1.0.0","namespace":"a","name":"b","version":"1.0.0"},"do":[{"a":{"try":[],"catch":{"retry":{"delay":{"seconds":1}}}}}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		if w, err := Compile(document); err == nil && w.GetRevision() == "" {
			t.Error("a workflow without a revision")
		}
	})
}
