package check

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// offAnnotation, on the control plane's Deployment, has the parts of the chart that the
// operator has switched off, with commas between. Without it all are on.
const offAnnotation = "headstart.dev/off"

// part is a part of the chart, as its values call it.
type part string

const (
	partAdmission    part = "admission"
	partInstaller    part = "installer"
	partIstio        part = "istio"
	partRuntimeClass part = "runtimeClass"
)

// Causes of the mesh's problems that an installation without partIstio has.
const (
	causeForbidden = "Forbidden"
	causeMissing   = "Missing"
)

// controlPlane is the control plane's Deployment.
func (l *look) controlPlane(ctx context.Context) (appsv1.Deployment, error) {
	return l.deploymentOnce.get(func() (appsv1.Deployment, error) {
		return objects.Get[appsv1.Deployment](ctx, l.Objects, objects.Deployments, l.Namespace, controlPlaneName)
	})
}

// off says whether the operator has switched the part off. Where nobody knows, he has not.
func (l *look) off(ctx context.Context, p part) bool {
	d, err := l.controlPlane(ctx)
	return err == nil && slices.Contains(strings.Split(d.Annotations[offAnnotation], ","), string(p))
}

// lacking is the outcome where nothing of a part is there: otherwise, unless it is off.
func (l *look) lacking(ctx context.Context, p part, otherwise Outcome) Outcome {
	if l.off(ctx, p) {
		return skip("switched off by the chart's %s.enabled", p)
	}
	return otherwise
}
