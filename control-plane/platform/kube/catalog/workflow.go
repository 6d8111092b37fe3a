package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// A Service names a workflow that is not there, or cannot be run.
	reasonWorkflowUnknown = "WorkflowUnknown"
	reasonWorkflowRefused = "WorkflowRefused"
)

// workflow reads a Service that has a workflow in the place of pods.
func (n *reading) workflow(of subject, s *object.Service, p policy.Policy) {
	w := n.objects.Workflows[p.Workflow]
	for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
		if key != policy.KeyWorkflow && !slices.Contains(policy.Keys(policy.Workflows), key) {
			n.refuse(of, reasonAnnotationsRefused, key, key+" is of functions that have pods; remove it, or "+policy.KeyWorkflow)
			return
		}
	}
	port, ok := httpPort(s.Ports)
	switch {
	case s.External || len(s.Selector) > 0:
		n.refuse(of, reasonAnnotationsRefused, policy.KeyWorkflow,
			"a Service with "+policy.KeyWorkflow+" has no pods; remove its selector, or the annotation")
	case !ok:
		n.refuse(of, reasonAnnotationsRefused, policy.KeyWorkflow,
			"a Service with "+policy.KeyWorkflow+" has a TCP port; give it one, or remove the annotation")
	case w == nil:
		n.refuse(of, reasonWorkflowUnknown, policy.KeyWorkflow,
			fmt.Sprintf("namespace %s has no Workflow %s; apply it, or name another one", n.namespace, p.Workflow))
	case w.Wrong != "":
		n.refuse(of, reasonWorkflowRefused, policy.KeyWorkflow, fmt.Sprintf("Workflow %s cannot be run: %s", p.Workflow, w.Wrong))
	default:
		hosts := n.hosts(s.Name)
		n.functions = append(n.functions, &Function{Function: platform.Function{Name: of.name, Hosts: hosts, Service: hosts[0],
			ServicePort: port.Port, HTTP2: saysHTTP2(port), RequestTimeout: cmp.Or(w.Timeout, revisionTimeout), Policy: p, Workflow: w.Compiled}})
	}
}
