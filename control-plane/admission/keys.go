package admission

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// maxUnknown is how many unknown keys a message names: it has at most 5 KiB.
const maxUnknown = 4

// unknownKeys are the keys of our domain that mean nothing.
func unknownKeys(on policy.Objects, known []string) string {
	known = slices.DeleteFunc(slices.Clone(known), func(key string) bool { return key == policy.KeyNamedInput })
	unknown := own + " && !(k in " + list(known) + ")"
	if on == policy.Functions {
		unknown += " && " + not("k", inputNames)
	}
	return "variables.annotations.map(k, k).filter(k, " + unknown + ")"
}

// runtimeClass refuses a pod whose containers another runtime would start, without what its annotations ask for.
var runtimeClass = []variable{
	{"runtimeClassNeeds", list([]string{policy.KeyInput, policy.KeyVolumes, policy.KeyS3, policy.KeyConnections}) + ".filter(k, k in variables.annotations)"},
	{"runtimeClassProblem", "variables.runtimeClassNeeds.size() == 0 || has(object.spec) && has(object.spec.runtimeClassName) && object.spec.runtimeClassName == 'headstart' ? ''\n" +
		": 'spec.runtimeClassName: is not headstart, which ' + variables.runtimeClassNeeds[0] + ' needs; set it to headstart'"},
}

// template refuses what stands at a revision's template.
var template = []variable{
	{"templateOwn", "has(object.spec) && has(object.spec.template) && has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations)\n" +
		"  ? object.spec.template.metadata.annotations.map(k, k).filter(k, " + own + ")\n: []"},
	{"templateKeys", "variables.templateOwn.filter(k, !(k in " + list(policy.Keys(policy.Templates)) + "))"},
	{"templateProblem", "variables.templateKeys.size() == 0 ? '' : 'spec.template.metadata.annotations[' + variables.templateKeys[0] + ']: does not belong here; move it to metadata.annotations'"},
}

// unknownProblem names them, and what each may be a misspelling of.
func unknownProblem(on policy.Objects, keys []string) string {
	known := strings.Join(keys, ", ")
	named := policy.NoInputName + "; " + policy.NoInputNameFix
	if on == policy.Jobs {
		named = policy.OneInputOfJob + "; " + policy.OneOfJobFix
	}
	var near strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&near, "k.lowerAscii().matches(%s) ? %s\n  : ", raw(misspelt(key)), quote("did you mean "+key+"? Known keys are "))
	}
	ofPods := "[]"
	if on == policy.Functions {
		ofPods = list(policy.Keys(policy.Templates))
	}
	return fmt.Sprintf("(variables.unknown.size() <= %d ? variables.unknown : [variables.unknown[0]]).map(k,\n"+
		"  k in "+ofPods+" ? k + "+quote(": "+policy.OfPods+"; "+policy.OfPodsFix)+"\n"+
		"  : k.startsWith(%s) ? k + %s\n"+
		"  : k + ': is not a Headstart annotation; ' + (%s'remove it; known keys are ') + %s).join('; and ')",
		maxUnknown, quote(filterapi.AnnotationNamed), quote(": "+named), near.String(), quote(known))
}

// misspelt matches keys that are one letter off. That is what a regular expression can
// do; policy.Parse looks further.
func misspelt(key string) string {
	name, end := strings.TrimPrefix(key, policy.Prefix), ""
	if key == policy.KeyNamedInput {
		name, end = strings.TrimPrefix(policy.KeyInput, policy.Prefix), "[.]("+reference.InputName()+")"
	}
	forms := []string{regexp.QuoteMeta(name) + "."}
	for i := range name {
		// Left out, another one, or one more before it.
		forms = append(forms, regexp.QuoteMeta(name[:i])+".?"+regexp.QuoteMeta(name[i+1:]), regexp.QuoteMeta(name[:i])+"."+regexp.QuoteMeta(name[i:]))
	}
	return "^" + regexp.QuoteMeta(policy.Prefix) + "(" + strings.Join(forms, "|") + ")" + end + "$"
}

// list is a CEL list of strings.
func list(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
