package kube

import rbacv1 "k8s.io/api/rbac/v1"

// Rules are what the control plane's service account must be allowed in the whole cluster
// for this platform, and all that it needs.
func Rules() []rbacv1.PolicyRule {
	read := []string{"list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "pods", "nodes"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale", "statefulsets/scale"}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{knativeService.Group}, Resources: []string{knativeService.Resource, revision.Resource}, Verbs: read},
		{APIGroups: []string{workflows.Group}, Resources: []string{workflows.Resource}, Verbs: read},
		{APIGroups: []string{workflows.Group}, Resources: []string{workflows.Resource + "/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{scaledObject.Group}, Resources: []string{scaledObject.Resource}, Verbs: read},
	}
}
