package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// A Service without pods is a function if it names a workflow that can be run.
func TestAWorkflowBecomesAFunction(t *testing.T) {
	of := func(change func(*object.Service)) *object.Service {
		s := service("checkout", map[string]string{policy.KeyWorkflow: "buy", policy.KeyCallers: "web"})
		s.Selector = nil
		if change != nil {
			change(s)
		}
		return s
	}
	objects := with([]*object.Service{of(nil)})
	objects.Workflows = map[string]*object.Workflow{"buy": {ObjectMeta: named("buy"), Compiled: []byte("w"), Timeout: 7 * time.Second}}
	functions, problems := reader.Read("shop", objects)
	if len(problems) != 0 || len(functions) != 1 {
		t.Fatalf("functions %+v, problems %+v", functions, problems)
	}
	f := functions[0]
	if f.Name != "shop/checkout" || string(f.Function.Workflow) != "w" || f.RequestTimeout != 7*time.Second || f.ServicePort != 80 ||
		f.Service != "checkout.shop.svc.cluster.local" || f.Policy.Callers != "web" || f.ScalesToZero {
		t.Errorf("%+v", f)
	}
	for name, c := range map[string]struct {
		service  *object.Service
		workflow *object.Workflow
		reason   string
		says     string
	}{
		"no workflow":    {of(nil), nil, "WorkflowUnknown", "no Workflow buy"},
		"a wrong one":    {of(nil), &object.Workflow{Wrong: "spec.do: nothing"}, "WorkflowRefused", "spec.do: nothing"},
		"pods":           {of(func(s *object.Service) { s.Selector = map[string]string{"app": "x"} }), &object.Workflow{}, "AnnotationsRefused", "remove its selector"},
		"no port":        {of(func(s *object.Service) { s.Ports = nil }), &object.Workflow{}, "AnnotationsRefused", "has a TCP port"},
		"another name":   {of(func(s *object.Service) { s.Annotations[policy.KeyWorkflow] = "a b" }), &object.Workflow{}, "AnnotationsRefused", "is not the name of a Workflow"},
		"scales to zero": {of(func(s *object.Service) { s.Annotations[policy.KeyScaleToZero] = "1m" }), &object.Workflow{}, "AnnotationsRefused", "is of functions that have pods"},
		"an input":       {of(func(s *object.Service) { s.Annotations["headstart.dev/input.mask"] = "s3://videos/{header.x-key}" }), &object.Workflow{}, "AnnotationsRefused", "is of functions that have pods"},
	} {
		objects := with([]*object.Service{c.service})
		if c.workflow != nil {
			objects.Workflows = map[string]*object.Workflow{"buy": c.workflow}
		}
		functions, problems := reader.Read("shop", objects)
		if len(functions) != 0 || len(problems) != 1 || problems[0].Reason != c.reason || !strings.Contains(problems[0].Message, c.says) || !problems[0].Refused {
			t.Errorf("%s: functions %+v, problems %+v", name, functions, problems)
		}
	}
}

// A namespace's workflows are as much as the annotations of its functions may be, together with these: nodes keep them all.
func TestWorkflowsCountWithAnnotations(t *testing.T) {
	var services []*object.Service
	for i := range 100 {
		s := aged(fmt.Sprintf("s%d", i), int64(i))
		s.Annotations, s.Selector = map[string]string{policy.KeyWorkflow: "large"}, nil
		services = append(services, s)
	}
	objects := with(services)
	objects.Workflows = map[string]*object.Workflow{"large": {ObjectMeta: named("large"), Compiled: make([]byte, 100<<10)}}
	functions, problems := reader.Read("shop", objects)
	if len(functions) != 9 || !names(functions)["shop/s0"] || len(problems) == 0 || problems[0].Reason != "TooManyFunctions" {
		t.Errorf("%d functions, %d problems", len(functions), len(problems))
	}
}
