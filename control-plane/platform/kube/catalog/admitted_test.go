package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// aged is a Service that was made at that second.
func aged(name string, second int64) *object.Service {
	s := service(name, map[string]string{policy.KeyInput: "s3://videos/{header.x-key}"})
	s.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
	return s
}

func names(functions []*catalog.Function) map[string]bool {
	all := map[string]bool{}
	for _, f := range functions {
		all[f.Name] = true
	}
	return all
}

// However many Services ask, a namespace has so many functions, always the same ones: the oldest, and of
// one second those that come first by name.
func TestAttackANamespaceTakesNoMoreThanItsFunctions(t *testing.T) {
	const most, asking = catalog.DefaultFunctionsMost, 3000
	var services []*object.Service
	for i := range asking {
		services = append(services, aged(fmt.Sprintf("s%d", i), int64(asking-i)))
	}
	functions, problems := reader.Read("shop", with(services))
	if len(functions) != most || len(problems) != 32 {
		t.Fatalf("%d functions, %d problems", len(functions), len(problems))
	}
	before := names(functions)
	for i := range most {
		if name := fmt.Sprintf("shop/s%d", asking-1-i); !before[name] {
			t.Fatalf("%s is older than what works", name)
		}
	}
	for _, p := range problems {
		if p.Reason != "TooManyFunctions" || p.Field != policy.KeyInput || !p.Refused || before[p.Function] {
			t.Errorf("problem %+v", p)
		}
	}
	more, _ := reader.Read("shop", with(append(services, aged("aaa", asking+1))))
	for _, f := range more {
		if !before[f.Name] {
			t.Errorf("%s is younger, and takes another one's place", f.Name)
		}
	}
	few := catalog.Reader{Stores: reader.Stores, FunctionsMost: 2}
	if got, _ := few.Read("shop", with([]*object.Service{aged("b", 1), aged("c", 1), aged("a", 1), aged("old", 0)})); len(got) != 2 || !names(got)["shop/old"] || !names(got)["shop/a"] {
		t.Errorf("of two: %v", names(got))
	}
}

// Few functions with large annotations are as bad as many.
func TestAttackANamespaceTakesNoMoreThanItsAnnotations(t *testing.T) {
	large := catalog.Reader{Stores: reader.Stores, FunctionsMost: 10}
	var services []*object.Service
	for i := range 10 {
		s := aged(fmt.Sprintf("s%d", i), int64(i))
		s.Annotations[policy.KeyInput] = "s3://videos/" + strings.Repeat("a", 1000)
		s.Annotations["headstart.dev/input.mask"] = "s3://videos/" + strings.Repeat("b", 1000)
		services = append(services, s)
	}
	functions, problems := large.Read("shop", with(services))
	if len(functions) != 4 || !names(functions)["shop/s0"] || len(problems) != 6 || problems[0].Reason != "TooManyFunctions" {
		t.Errorf("%v work, problems %+v", names(functions), problems)
	}
}

func BenchmarkRead(b *testing.B) {
	var services []*object.Service
	for i := range 3000 {
		services = append(services, aged(fmt.Sprintf("s%d", i), int64(i)))
	}
	o := with(services)
	for b.Loop() {
		reader.Read("shop", o)
	}
}
