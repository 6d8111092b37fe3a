package admission_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// oldest is the first Kubernetes that Headstart runs on.
var oldest = version.MajorMinor(1, 30)

// evaluator runs a policy with the CEL environment of that API server.
type evaluator struct {
	conditions []cel.Program
	variables  []named
	validation cel.Program
	message    cel.Program
}

type named struct {
	name    string
	program cel.Program
}

func compile(t testing.TB, p admissionv1.ValidatingAdmissionPolicy) *evaluator {
	t.Helper()
	env, err := environment.MustBaseEnvSet(oldest).NewExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType),
		cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType)),
	)
	if err != nil {
		t.Fatal(err)
	}
	program := func(expression string) cel.Program {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%v\nin %s", issues.Err(), expression)
		}
		prg, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		return prg
	}
	v := p.Spec.Validations[0]
	if v.MessageExpression == "" {
		v.MessageExpression = strconv.Quote(v.Message)
	}
	e := &evaluator{validation: program(v.Expression), message: program(v.MessageExpression)}
	for _, c := range p.Spec.MatchConditions {
		e.conditions = append(e.conditions, program(c.Expression))
	}
	for _, v := range p.Spec.Variables {
		e.variables = append(e.variables, named{v.Name, program(v.Expression)})
	}
	return e
}

// admit returns the message of a refusal, empty for none. old is nil when the object is
// new. That one variable has no value is an error, though the API server would not look
// at all of them.
func (e *evaluator) admit(old, object map[string]any, namespace string) (string, error) {
	return e.judge("alice", old, object, namespace)
}

// judge does so for what a user writes; object is nil when the old one is deleted.
func (e *evaluator) judge(user string, old, object map[string]any, namespace string) (string, error) {
	in := map[string]any{"object": nil, "oldObject": nil, "request": map[string]any{
		"namespace": namespace, "userInfo": map[string]any{"username": user},
	}}
	if object != nil {
		in["object"] = object
	}
	if old != nil {
		in["oldObject"] = old
	}
	for _, c := range e.conditions {
		v, _, err := c.Eval(in)
		if err != nil {
			return "", fmt.Errorf("evaluating the condition: %w", err)
		}
		if v != types.True {
			return "", nil
		}
	}
	variables := map[string]ref.Val{}
	in["variables"] = variables
	for _, v := range e.variables {
		value, _, err := v.program.Eval(in)
		if err != nil {
			return "", fmt.Errorf("evaluating %s: %w", v.name, err)
		}
		variables[v.name] = value
	}
	ok, _, err := e.validation.Eval(in)
	if err != nil || ok == types.True {
		return "", err
	}
	message, _, err := e.message.Eval(in)
	if err != nil {
		return "", fmt.Errorf("evaluating the message: %w", err)
	}
	text, isText := message.Value().(string)
	if !isText || text == "" {
		return "", errors.New("a refusal without a message")
	}
	return text, nil
}
