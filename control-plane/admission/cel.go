package admission

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// variable is a named expression, which those after it may use.
type variable struct{ name, expression string }

// own says in CEL that the key k is of Headstart's domain, as policy.InDomain does.
const own = "k.lowerAscii().startsWith('" + policy.Prefix + "')"

// changed says that an annotation of ours is new, changed or gone. An update of
// anything else, such as a finalizer's, must not fail for what was there before.
const changed = "oldObject == null || !has(oldObject.metadata.annotations)\n" +
	"  ? has(object.metadata.annotations) && object.metadata.annotations.exists(k, " + own + ")\n" +
	"  : !has(object.metadata.annotations)\n" +
	"    ? oldObject.metadata.annotations.exists(k, " + own + ")\n" +
	"    : object.metadata.annotations.exists(k, " + own + " &&\n" +
	"        !(k in oldObject.metadata.annotations && oldObject.metadata.annotations[k] == object.metadata.annotations[k])) ||\n" +
	"      oldObject.metadata.annotations.exists(k, " + own + " && !(k in object.metadata.annotations))"

// changedTemplate says the same of a revision's template, for what comes to it.
const changedTemplate = "(" + changed + ") ||\n" +
	"has(object.spec) && has(object.spec.template) && has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations) &&\n" +
	"  object.spec.template.metadata.annotations.exists(k, " + own + " && !(oldObject != null && has(oldObject.spec) && has(oldObject.spec.template) &&\n" +
	"    has(oldObject.spec.template.metadata) && has(oldObject.spec.template.metadata.annotations) && k in oldObject.spec.template.metadata.annotations))"

// ofKnative says of a Service that Knative has made it, as object.ServiceOf does.
var ofKnative = "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o,\n" +
	"  has(o.controller) && o.controller && " + list(object.KnativeGroups) + ".exists(group, o.apiVersion.startsWith(group)))"

// maxShown is how many characters of a value a message repeats, as in package field.
const maxShown = 64

// quote writes s as a CEL string.
func quote(s string) string { return strconv.QuoteToASCII(s) }

// raw writes a regular expression as a CEL string that means what it says.
func raw(expr string) string {
	if !strings.Contains(expr, `'`) {
		return "r'" + expr + "'"
	}
	return `r"` + expr + `"`
}

// shown is the CEL that repeats a value in a message: quoted, cut, and without the
// userinfo of a URL, as field.Quote does.
func shown(value string) string {
	masked := fmt.Sprintf("(%[1]s.contains('@') ? (%[1]s.matches(r'^[a-z0-9]{1,16}://') ? %[1]s.substring(0, %[1]s.indexOf('://') + 3) : '') + '***' + %[1]s.substring(%[1]s.lastIndexOf('@')) : %[1]s)", value)
	return fmt.Sprintf("[%s].map(s, s == '' ? '' : strings.quote(s.size() > %[2]d ? s.substring(0, %[2]d) + '…' : s) + ' ')[0]", masked, maxShown)
}

// rule is one thing that can be wrong with a value. The rules of an annotation are asked
// in order, so that each may count on those before it.
type rule struct {
	// wrong is a CEL condition.
	wrong string
	// problem and fix are as in field.Error.
	problem, fix string
}

// chosen is the CEL of the first rule that is broken: "<problem>; <fix>", else "".
func chosen(rules []rule) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%s\n  ? %s\n: ", r.wrong, quote(r.problem+"; "+r.fix))
	}
	return b.String() + "''"
}

// rules returns the variables that check one annotation. The last is its problem in full,
// empty if there is none.
func rules(a policy.Annotation) []variable {
	name := camel(strings.TrimPrefix(a.Key, policy.Prefix))
	text := "variables." + name
	// An absent annotation is as good as its example.
	vs := []variable{{name, fmt.Sprintf("%s in variables.annotations ? variables.annotations[%s] : %s", quote(a.Key), quote(a.Key), quote(a.Example))}}
	var broken []rule
	switch a.Kind {
	case policy.Path:
		more, r := route(name, a)
		vs, broken = append(vs, more...), r
	case policy.Name:
		broken = []rule{{not(text, field.LabelForm), a.Not, field.LabelFix}}
	case policy.Bytes:
		broken = amount(text, a)
	case policy.Duration:
		broken = duration(text, a)
	case policy.Stream:
		broken = []rule{{not(text, policy.StreamForm.String()), "is not a stream", "write it like " + a.Example}}
	case policy.Count:
		broken = count(text, a)
	case policy.Namespaces:
		broken = namespaces(text, a)
	case policy.Prefixes:
		broken = prefixes(text, a)
	case policy.Names:
		broken = labels(text, a)
	case policy.Choice:
		problem, fix := a.NoChoice()
		broken = []rule{{"!(" + text + " in " + list(a.Choices) + ")", problem, fix}}
	}
	what := variable{name + "Wrong", chosen(broken)}
	if a.Word != "" {
		what.expression = fmt.Sprintf("%s == %s ? ''\n: %s", text, quote(a.Word), what.expression)
	}
	problem := variable{name + "Problem", fmt.Sprintf("variables.%s == '' ? '' : %s + %s + variables.%s", what.name, quote(a.Key+": "), shown(text), what.name)}
	return append(vs, what, problem)
}

// camel turns input-limit into inputLimit: CEL's names have no hyphens.
func camel(s string) string {
	words := strings.Split(s, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
