package admission

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// routes refuses routes that set what only gateways and daemons say. A gateway overwrites what counts
// (manifests/istio/keys.yaml); so nothing depends on this policy alone, and who tries hears of it.
func routes() Policy {
	istio := func(of string) string { // Istio's Headers, or none
		return fmt.Sprintf("%[1]s.?headers.?request.?set.orValue({}).exists(k, %[2]s) || %[1]s.?headers.?request.?add.orValue({}).exists(k, %[2]s)",
			of, ownHeader("k"))
	}
	gatewayAPI := func(of string) string { // the Gateway API's filters
		header := ownHeader("k.name")
		return fmt.Sprintf("%[1]s.?filters.orValue([]).exists(f, f.?requestHeaderModifier.?set.orValue([]).exists(k, %[2]s) || "+
			"f.?requestHeaderModifier.?add.orValue([]).exists(k, %[2]s))", of, header)
	}
	return problemPolicy("headstart-routes", []admissionv1.Rule{
		{APIGroups: []string{"networking.istio.io"}, APIVersions: []string{"*"}, Resources: []string{"virtualservices"}},
		{APIGroups: []string{"gateway.networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"httproutes", "grpcroutes"}},
	}, fmt.Sprintf(
		"object.?spec.?http.orValue([]).exists(h, %s || h.?route.orValue([]).exists(r, %s)) ||\n"+
			"object.?spec.?rules.orValue([]).exists(h, %s || h.?backendRefs.orValue([]).exists(r, %s))",
		istio("h"), istio("r"), gatewayAPI("h"), gatewayAPI("r"),
	), "a route must not set or add headers that begin with "+reference.OwnHeaders+": only gateways and Headstart's daemons do")
}

// ownHeader is whether a header's name is one of the project's, also with the underscores that some
// programs take for dashes.
func ownHeader(name string) string {
	return fmt.Sprintf("%s.lowerAscii().replace('_', '-').startsWith('%s')", name, reference.OwnHeaders)
}

// addresses refuses entries of the mesh that lead gateways to unix sockets: the node's daemon listens
// on some for its gateways alone. A ServiceEntry that only its own namespace sees leads no gateway
// of another there.
func addresses() Policy {
	return problemPolicy("headstart-addresses", []admissionv1.Rule{
		{APIGroups: []string{"networking.istio.io"}, APIVersions: []string{"*"}, Resources: []string{"serviceentries", "workloadentries"}},
	}, "object.?spec.?endpoints.orValue([]).exists(e, e.?address.orValue('').lowerAscii().startsWith('unix:')) &&\n"+
		"  object.?spec.?exportTo.orValue([]) != ['.'] ||\n"+
		"object.?spec.?address.orValue('').lowerAscii().startsWith('unix:')",
		"an address must not be a unix socket, on which the node's gateways find Headstart's daemon; "+
			"a ServiceEntry may have one with exportTo: [\".\"]")
}

// problemPolicy refuses objects for which problem, a CEL expression, holds. What cannot be judged is
// refused.
func problemPolicy(name string, objects []admissionv1.Rule, problem, message string) Policy {
	return newPolicy(name, admissionv1.Fail, objects, admissionv1.ValidatingAdmissionPolicySpec{
		Validations: []admissionv1.Validation{{Expression: "!(" + problem + ")", Message: message}},
	})
}
