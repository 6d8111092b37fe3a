package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// routeKinds are what the policies headstart-routes and headstart-addresses judge.
var routeKinds = []schema.GroupVersionResource{
	objects.VirtualServices, objects.HTTPRoutes, objects.GRPCRoutes, objects.ServiceEntries, objects.WorkloadEntries,
}

// suspicious is in all objects that these policies refuse. Only such are shown to the API server again.
var suspicious = []string{"headstart", "unix:"}

// deniedBy begins what the API server says of an object that one of our policies refuses, and denied what the policy says.
// Others' policies and webhooks may also refuse with 403, as if the user had no right to patch.
const (
	deniedBy        = "ValidatingAdmissionPolicy 'headstart-"
	denied          = "denied request: "
	deniedByWebhook = "denied the request"
)

// lookRoutes looks for objects that were there before the policies. The API server judges them by a dry run of
// a change that changes nothing, so there is no second set of rules.
func lookRoutes(ctx context.Context, l *look) Outcome {
	var problems []Problem
	judged := 0
	for _, kind := range routeKinds {
		served, err := l.Objects.Serves(ctx, kind)
		if err != nil {
			return unknown(kind.Resource, err)
		}
		if !served {
			continue
		}
		all, err := objects.List[unstructured.Unstructured](ctx, l.Objects, kind, l.Only, "")
		if err != nil {
			return unknown(kind.Resource, err)
		}
		for _, o := range all {
			judged++
			if !isSuspicious(o) {
				continue
			}
			problem, err := l.refused(ctx, kind, o)
			if apierrors.IsForbidden(err) {
				return skip("you may not patch %s, not even without effect", kind.Resource)
			}
			if err != nil {
				return unknown(kind.Resource, err)
			}
			problems = append(problems, problem...)
		}
	}
	if len(problems) > 0 {
		return warn("the API server would refuse %d of %d", len(problems), judged).with(problems)
	}
	return pass("%d looked at", judged)
}

func isSuspicious(o unstructured.Unstructured) bool {
	text := strings.ToLower(fmt.Sprint(o.Object["spec"]))
	return slices.ContainsFunc(suspicious, func(word string) bool { return strings.Contains(text, word) })
}

// refused is what a policy of ours says of an object, if one refuses it. Others' refusals are none of ours.
func (l *look) refused(ctx context.Context, kind schema.GroupVersionResource, o unstructured.Unstructured) ([]Problem, error) {
	err := l.Objects.Unchanged(ctx, kind, o.GetNamespace(), o.GetName())
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil, nil
	case strings.Contains(err.Error(), deniedBy):
		_, words, _ := strings.Cut(err.Error(), denied)
		return []Problem{{Object: o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName(), Message: words}}, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		strings.Contains(err.Error(), denied), strings.Contains(err.Error(), deniedByWebhook):
		return nil, nil
	}
	return nil, err
}
