package check

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// expiryWarning is how long before its end the authority is to be replaced: time to plan.
const expiryWarning = 90 * 24 * time.Hour

func lookControlPlane(ctx context.Context, l *look) Outcome {
	d, err := l.controlPlane(ctx)
	if apierrors.IsNotFound(err) {
		return fail("Headstart is not installed: namespace %s has no Deployment %s", l.Namespace, controlPlaneName)
	}
	if err != nil {
		return unknown("the control plane", err)
	}
	// The API server fills in 1 for a Deployment that does not say how many.
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	var o Outcome
	switch available := d.Status.AvailableReplicas; {
	case available == 0:
		o = fail("Deployment %s/%s has no available replica", l.Namespace, controlPlaneName)
	case wanted < 2:
		return warn("one replica").with([]Problem{{Object: "Deployment " + l.Namespace + "/" + controlPlaneName,
			Message: "while its pod is away, cold requests wait and nothing is scaled; set the chart's controlplane.replicas to 2"}})
	case available < wanted:
		o = warn("%d of %d available", available, wanted)
	default:
		return pass("%d of %d available", available, wanted)
	}
	selector := labels.Set(d.Spec.Selector.MatchLabels).String()
	pods, err := objects.List[corev1.Pod](ctx, l.Objects, objects.Pods, l.Namespace, selector)
	if err != nil || selector == "" {
		return o
	}
	return o.with(waiting(pods))
}

func lookAdmin(ctx context.Context, l *look) Outcome {
	s, err := l.status(ctx)
	if err != nil {
		return unknown("its status", err)
	}
	if s.Version != l.Version {
		return warn("it is version %s, and this program %s", s.Version, l.Version)
	}
	return pass("%s", s.Version)
}

// handOver is longer than an orderly end of one control plane leaves the Lease without a holder.
const handOver = 3 * time.Second

// leaseLate is how long ago the holder may have renewed the Lease: one that crashed is followed after 15 s, and clocks differ.
const leaseLate = time.Minute

func lookInCharge(ctx context.Context, l *look) Outcome {
	o, vacant := inCharge(ctx, l)
	if !vacant {
		return o
	}
	again := time.NewTimer(handOver)
	defer again.Stop()
	select {
	case <-again.C:
		o, _ = inCharge(ctx, l)
	case <-ctx.Done():
	}
	return o
}

// inCharge looks at the Lease; vacant: nobody has it now.
func inCharge(ctx context.Context, l *look) (o Outcome, vacant bool) {
	lease, err := objects.Get[coordinationv1.Lease](ctx, l.Objects, objects.Leases, l.Namespace, controlPlaneName)
	if apierrors.IsNotFound(err) {
		return fail("there is no Lease %s/%s, and no control plane has made one", l.Namespace, controlPlaneName), false
	}
	if err != nil {
		return unknown("the Lease", err), false
	}
	holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime
	if holder == nil || *holder == "" || renewed == nil {
		return fail("no control plane has Lease %s/%s", l.Namespace, controlPlaneName), true
	}
	if since := time.Since(renewed.Time); since > leaseLate {
		return fail("%s has Lease %s/%s, and renewed it %s ago", *holder, l.Namespace, controlPlaneName, since.Round(time.Second)), false
	}
	return pass("%s", *holder), false
}

func lookAuthority(ctx context.Context, l *look) Outcome {
	c, err := objects.Get[corev1.ConfigMap](ctx, l.Objects, objects.ConfigMaps, l.Namespace, authorityName)
	if apierrors.IsNotFound(err) || err == nil && c.Data[authorityKey] == "" {
		return fail("ConfigMap %s/%s has none", l.Namespace, authorityName)
	}
	if err != nil {
		return unknown("ConfigMap "+authorityName, err)
	}
	block, _ := pem.Decode([]byte(c.Data[authorityKey]))
	if block == nil {
		return fail("ConfigMap %s/%s holds no certificate", l.Namespace, authorityName)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fail("ConfigMap %s/%s holds no certificate: %v", l.Namespace, authorityName, err)
	}
	end := cert.NotAfter.Format(time.DateOnly)
	switch left := time.Until(cert.NotAfter); {
	case !cert.IsCA:
		return fail("the certificate in ConfigMap %s/%s is of no authority", l.Namespace, authorityName)
	case left <= 0:
		return fail("it has ended on %s", end)
	case left < expiryWarning:
		return warn("it ends on %s", end)
	}
	return pass("until %s", end)
}

func lookRuntimeClass(ctx context.Context, l *look) Outcome {
	c, err := objects.Get[nodev1.RuntimeClass](ctx, l.Objects, objects.RuntimeClasses, "", runtimeName)
	if apierrors.IsNotFound(err) {
		return l.lacking(ctx, partRuntimeClass, fail("there is no RuntimeClass %s", runtimeName))
	}
	if err != nil {
		return unknown("the RuntimeClass", err)
	}
	if c.Handler != runtimeName {
		return fail("its handler is %q, not %s", c.Handler, runtimeName)
	}
	if c.Scheduling == nil || c.Scheduling.NodeSelector[nodeLabel] != nodeReady {
		return warn("it does not select nodes by %s=%s: pods may come to nodes that cannot start them", nodeLabel, nodeReady)
	}
	return pass("handler %s", c.Handler)
}

// admissionNames are the policies; their bindings have the same names.
var admissionNames = []string{"headstart-services", "headstart-knative-services", "headstart-pods", "headstart-routes", "headstart-addresses"}

func lookAdmission(ctx context.Context, l *look) Outcome {
	var missing, doubtful []Problem
	there := false
	for _, name := range admissionNames {
		p, err := objects.Get[admissionv1.ValidatingAdmissionPolicy](ctx, l.Objects, objects.AdmissionPolicies, "", name)
		b, errB := objects.Get[admissionv1.ValidatingAdmissionPolicyBinding](ctx, l.Objects, objects.AdmissionBindings, "", name)
		there = there || err == nil || errB == nil
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, Problem{Object: "ValidatingAdmissionPolicy " + name, Message: "it is not there"})
		case err != nil:
			return unknown("the admission policies", err)
		case apierrors.IsNotFound(errB):
			missing = append(missing, Problem{Object: "ValidatingAdmissionPolicyBinding " + name, Message: "it is not there, so the policy has no effect"})
		case errB != nil:
			return unknown("the bindings of the admission policies", errB)
		case !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny):
			doubtful = append(doubtful, Problem{Object: "ValidatingAdmissionPolicyBinding " + name, Message: "its actions do not have Deny: wrong annotations are not refused"})
		}
		if p.Status.TypeChecking == nil {
			continue
		}
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			doubtful = append(doubtful, Problem{Object: "ValidatingAdmissionPolicy " + name, Message: w.FieldRef + ": " + w.Warning})
		}
	}
	refused := fail("wrong annotations are not refused").with(append(missing, doubtful...))
	switch {
	case !there:
		return l.lacking(ctx, partAdmission, refused)
	case len(missing) > 0:
		return refused
	case len(doubtful) > 0:
		return warn("wrong annotations may not be refused").with(doubtful)
	}
	return pass("in effect")
}

func lookFunctions(ctx context.Context, l *look) Outcome {
	s, err := l.status(ctx)
	if err != nil {
		return unknown("its status", err)
	}
	var problems []Problem
	for _, f := range s.Functions {
		if !f.Refused || !l.wanted(f.Name) {
			continue
		}
		p := Problem{Object: f.Name, Message: "it is refused, and runs as if it had no annotations"}
		if n := len(f.Events); n > 0 {
			p.Message += ": " + f.Events[n-1].Message
		}
		problems = append(problems, p)
	}
	if s.Mesh != nil {
		for _, p := range s.Mesh.Problems {
			// Without the chart's part for Istio the control plane has no rights there, and
			// misses the rest of it.
			if (p.Cause == causeForbidden || p.Cause == causeMissing) && l.off(ctx, partIstio) {
				continue
			}
			problems = append(problems, Problem{Object: p.Object, Message: p.Cause + ": " + p.Message + "; " + p.Fix})
		}
	}
	if len(problems) > 0 {
		return fail("%d %s", len(problems), plural(len(problems), "problem", "problems")).with(problems)
	}
	var refused []Problem
	for _, p := range s.Routing {
		if p.Function == "" { // what gateways say of themselves, or of all that they are told
			refused = append(refused, Problem{Object: "gateways of " + strings.Join(p.Gateways, ", "), Message: p.Message})
		}
	}
	if len(refused) > 0 {
		return warn("requests work, but not all gateways take what they are told").with(refused)
	}
	return pass("%d", len(s.Functions))
}

// wanted says whether namespace/name is to be looked at.
func (l *look) wanted(function string) bool {
	return l.Only == "" || strings.HasPrefix(function, l.Only+"/")
}
