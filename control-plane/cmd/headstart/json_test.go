package main

import (
	"bytes"
	"encoding"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// printed are all that commands print as JSON, each with one element in each list of structs.
var printed = []any{
	admin.Status{
		ControlPlanes: []admin.ControlPlane{{}}, Nodes: []admin.Node{{Problems: []admin.NodeProblem{{}}}},
		Functions: []admin.Function{{Instances: []admin.Instance{{}}, Events: []event.Event{{}}}},
		Routing:   []routing.Problem{{}}, Mesh: &admin.Mesh{Problems: []admin.MeshProblem{{}}},
	},
	[]admin.Applied{{}},
	admin.JobOutcome{},
	[]check.Result{{Problems: []check.Problem{{}}}},
	routing.Explanation{Nodes: []routing.Node{{}}, Gateways: []routing.Gateway{{To: []routing.To{{}}}}},
	trace.Trace{Spans: []trace.Span{{}}},
	trace.Summary{},
	admin.LogLine{},
	admin.Part{},
	trace.Saved{},
	versions{},
	[]advice.Service{{}},
	report{Functions: []advice.Gained{{}}},
	[]imported{{}},
}

// Scripts iterate over lists, and a null has no elements in no language.
func TestJSONHasNoNullLists(t *testing.T) {
	for _, v := range append(printed, admin.Status{}, routing.Explanation{}, trace.Trace{}, []admin.Applied(nil)) {
		var out bytes.Buffer
		if err := printJSON(&out, v); err != nil || strings.Contains(out.String(), "null") {
			t.Errorf("%T: %v\n%s", v, err, &out)
		}
	}
}

// Names are written as Kubernetes writes them.
func TestJSONNamesHaveOneStyle(t *testing.T) {
	camelCase := regexp.MustCompile("^[a-z][a-zA-Z0-9]*$")
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			look(typ.Elem())
		case reflect.Struct:
			if typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) { // it is a string
				return
			}
			for field := range typ.Fields() {
				if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !camelCase.MatchString(name) {
					t.Errorf("%s.%s is %q", typ, field.Name, name)
				}
				look(field.Type)
			}
		}
	}
	for _, v := range printed {
		look(reflect.TypeOf(v))
	}
}
