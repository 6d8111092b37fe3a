package admission

import (
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// beside is said of an annotation by which Headstart would do more than name inputs.
const beside = ": " + policy.Beside + "; " + policy.BesideFix

// observes is the CEL of whether a function's inputs are only named.
const observes = "'" + policy.KeyMode + "' in variables.annotations && variables.mode == '" + policy.ModeObserve + "'"

// modeMatches refuses what an observed function cannot have, as policy.Parse does.
var modeMatches = []variable{
	{"modeBeside", observes + "\n  ? variables.annotations.map(k, k).filter(k, k in " + list(notObserved()) + ") : []"},
	{"modeNoInput", "variables.inputsNamed.size() == 0 && !(" + quote(policy.KeyInput) + " in variables.annotations)"},
	{"modeBody", quote(policy.KeyInput) + " in variables.annotations && variables.annotations[" + quote(policy.KeyInput) + "] == " +
		quote(policy.InputBody)},
	{"modeMatchProblem", "!(" + observes + ") ? ''\n" +
		": (variables.modeBeside.map(k, k + " + quote(beside) + ") +\n" +
		"    (variables.modeBody ? [" + quote(said(policy.KeyInput, policy.InputBody, policy.BodyBeside, policy.BodyBesideFix)) + "] : []) +\n" +
		"    (variables.modeNoInput ? [" + quote(said(policy.KeyMode, policy.ModeObserve, policy.NoneBeside, policy.NoneBesideFix)) + "] : [])" +
		").join('; and ')"},
}

// templateMatches refuses the same at a revision's template. It follows template.
var templateMatches = []variable{
	{"templateBeside", observes + "\n  ? variables.templateOwn.filter(k, k in " +
		list([]string{policy.KeyVolumes, policy.KeyS3, policy.KeyConnections}) + ") : []"},
	{"templateMatchProblem", "variables.templateBeside.map(k, 'spec.template.metadata.annotations[' + k + ']' + " + quote(beside) + ").join('; and ')"},
}

// notObserved are the keys of the annotations that such a function cannot have.
func notObserved() (keys []string) {
	for _, a := range policy.Annotations(policy.Functions) {
		if !a.Observed {
			keys = append(keys, a.Key)
		}
	}
	return keys
}

// said is what an error says of an annotation's value.
func said(key, value, problem, fix string) string {
	return (&field.Error{Field: key, Value: value, Problem: problem, Fix: fix}).Error()
}
