package knative

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const checkout = `apiVersion: headstart.dev/v1alpha1
kind: Workflow
metadata:
  name: checkout
  namespace: shop
  annotations: { headstart.dev/callers: web }
spec:
  document: { dsl: '1.0.0', namespace: shop, name: checkout, version: '1.0.0' }
  timeout: { after: PT10S }
  do:
  - stock:
      call: http
      with: { method: get, endpoint: 'http://stock.shop/' }
`

// A workflow is a function without a program.
func TestWorkflow(t *testing.T) {
	functions, err := Parse(strings.NewReader(checkout), nil, nil)
	if err != nil || len(functions) != 1 {
		t.Fatal(functions, err)
	}
	f := functions[0]
	var w nodeapi.Workflow
	if err := proto.Unmarshal(f.Workflow, &w); err != nil || w.GetTasks()[0].GetName() != "stock" {
		t.Errorf("%v, %v", &w, err)
	}
	if f.Name != "shop/checkout" || f.Hosts[1] != "checkout.shop" || f.RequestTimeout != 10*time.Second || f.Policy.Callers != "web" || f.Image != "" {
		t.Errorf("%+v", f)
	}
	again, err := Parse(strings.NewReader(checkout), nil, nil)
	if err != nil || string(again[0].Workflow) != string(f.Workflow) {
		t.Errorf("it is another one: %v", err)
	}
}

// What is wrong with a workflow is told with its line and its field.
func TestWrongWorkflow(t *testing.T) {
	for change, want := range map[string]string{
		"call: http|call: grpc": "line 12: function shop/checkout: spec.do[0].stock.call",
		"method: get, |":        "spec",
		"headstart.dev/callers: web|headstart.dev/input: body":    "headstart.dev/input",
		"name: checkout\n  namespace|name: Checkout\n  namespace": "metadata.name",
		"v1alpha1|v1":    "apiVersion",
		"PT10S|tomorrow": "line 9: function shop/checkout: spec.timeout.after",
	} {
		from, to, _ := strings.Cut(change, "|")
		if _, err := Parse(strings.NewReader(strings.Replace(checkout, from, to, 1)), nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}
