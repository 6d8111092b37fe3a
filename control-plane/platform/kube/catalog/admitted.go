package catalog

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// DefaultFunctionsMost is far above what a team runs, and a small part of what a node's relay takes.
	DefaultFunctionsMost = 1000
	// bytesPerFunction is what the annotations of a namespace's functions, and their workflows, may have on average: several
	// times what one with an input has. Every node and control plane keeps them.
	bytesPerFunction = 1 << 10
	// refusalsMost is how many Services beyond it are told so: the owner of thousands needs no more, and
	// events of other namespaces wait in the same queue.
	refusalsMost = 32
)

const reasonTooManyFunctions = "TooManyFunctions"

// asking is an object that asks for Headstart: a Knative Service, or a Service.
type asking struct {
	meta    *metav1.ObjectMeta
	knative *object.KnativeService
	service *object.Service
}

// admitted are the oldest objects that ask for Headstart, Knative's before others; those beyond
// FunctionsMost, or beyond the annotations that so many have, are refused. What works goes on when others are added.
func (n *reading) admitted() []asking {
	var all []asking
	for _, s := range n.objects.KnativeServices {
		if len(s.Annotations) > 0 {
			all = append(all, asking{meta: &s.ObjectMeta, knative: s})
		}
	}
	for _, s := range n.objects.Services {
		if !s.Knative && len(s.Annotations) > 0 {
			all = append(all, asking{meta: &s.ObjectMeta, service: s})
		}
	}
	slices.SortFunc(all, func(a, b asking) int {
		return cmp.Or(a.meta.CreationTimestamp.Compare(b.meta.CreationTimestamp.Time), cmp.Compare(a.meta.Name, b.meta.Name))
	})
	most := cmp.Or(n.FunctionsMost, DefaultFunctionsMost)
	fit, bytes := 0, 0
	for ; fit < min(most, len(all)); fit++ {
		for key, value := range all[fit].meta.Annotations {
			bytes += len(key) + len(value)
		}
		if w := n.objects.Workflows[all[fit].meta.Annotations[policy.KeyWorkflow]]; w != nil {
			bytes += len(w.Compiled)
		}
		if bytes > most*bytesPerFunction {
			break
		}
	}
	for _, s := range all[fit:min(fit+refusalsMost, len(all))] {
		of := subject{name: n.namespace + "/" + s.meta.Name, knative: s.knative != nil}
		n.refuse(of, reasonTooManyFunctions, anyKey(s.meta.Annotations), fmt.Sprintf(
			"namespace %s has more than %d functions, or more than %d KiB of annotations and workflows; its oldest work. Remove the annotations "+
				"headstart.dev/ from some, or ask the operator to raise controlplane.functionsPerNamespace",
			n.namespace, most, most*bytesPerFunction>>10))
	}
	all = all[:fit]
	slices.SortFunc(all, func(a, b asking) int {
		if (a.knative != nil) != (b.knative != nil) {
			if a.knative != nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.meta.Name, b.meta.Name)
	})
	return all
}
