package admission

import (
	"fmt"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// labels checks a list of different names.
func labels(text string, a policy.Annotation) []rule {
	names := text + ".split(',')"
	problem, fix := a.TooManyNames()
	return []rule{
		{fmt.Sprintf("%s.size() > %d", names, a.Largest), problem, fix},
		{"!" + names + ".all(n, n.matches(" + raw(field.LabelForm) + "))", a.Not, "write it like " + a.Example},
		{"!" + names + ".all(n, " + names + ".filter(m, m == n).size() == 1)", policy.NameTwice, policy.NameTwiceFix},
	}
}

// connectionsGranted holds good connections against the operator's destinations, as policy.ParseJob does with those
// that are granted to the namespace.
var connectionsGranted = []variable{
	{"destinationsGranted", "variables.destinations.filter(d,\n" +
		"  d.namespaces.size() == 0 || request.namespace in d.namespaces)"},
	{"connectionsMissing", quote(policy.KeyConnections) + " in variables.annotations &&\n" +
		"  variables.connectionsWrong == ''\n" +
		"  ? variables.connections.split(',').filter(n, !variables.destinationsGranted.exists(d, d.name[0] == n)) : []"},
	{"connectionsGrantProblem", "variables.connectionsMissing.size() == 0 ? ''\n" +
		": " + quote(policy.KeyConnections+": ") + " + strings.quote(variables.connectionsMissing[0]) + " +
		quote(" "+policy.NoDestination+"; ") + " +\n" +
		"    (variables.destinationsGranted.size() == 0 ? '' : 'use one of ' + " +
		firstNames("variables.destinationsGranted.map(d, d.name[0])") + " + ', or ') + 'ask the operator to allow it'"},
}
