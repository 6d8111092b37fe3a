package faults

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// wrongAnnotations make no sense.
var wrongAnnotations = []struct {
	key, value string
	// says are parts of the message: key, value, and what to do.
	says []string
}{
	{"headstart.dev/scale-to-zero", "soon", []string{"headstart.dev/scale-to-zero", `"soon"`, "write it like 90s or 5m"}},
	{"headstart.dev/input", "ftp://example.com/x", []string{"headstart.dev/input", `"ftp://example.com/x"`, "write it like s3://"}},
	{"headstart.dev/store", "nobodys", []string{"headstart.dev/store", `"nobodys"`, "use one of " + world.StoreName}},
	{"headstart.dev/scale-to-zeroo", "90s", []string{"headstart.dev/scale-to-zeroo", "did you mean headstart.dev/scale-to-zero"}},
}

// annotationsRefused asks for what makes no sense, and is refused by the API server.
func annotationsRefused(ctx context.Context, r *rig, o *Outcome) error {
	for _, wrong := range wrongAnnotations {
		err := r.annotate(ctx, wrong.key, wrong.value)
		if err == nil {
			o.broken("%s=%s was admitted", wrong.key, wrong.value)
			continue
		}
		for _, part := range wrong.says {
			if !strings.Contains(err.Error(), part) {
				o.broken("the refusal of %s=%s does not say %s: %v", wrong.key, wrong.value, part, err)
			}
		}
	}
	return wait(ctx, quietFor)
}

func (r *rig) annotate(ctx context.Context, key, value string) error {
	return r.kubectl(ctx, "-n", world.Functions, "annotate", "service", odd, key+"="+value, "--overwrite")
}

// annotationsMalformed does so where nobody checks at admission: the function runs on as if
// it had not opted in, under load all the time, and that is said where its owner and the
// operator look. Then it is mended.
func annotationsMalformed(ctx context.Context, r *rig, o *Outcome) error {
	back, err := r.takeAway(ctx, "ValidatingAdmissionPolicyBinding", "headstart-services", "")
	if err != nil {
		return err
	}
	traffic := r.loadOn(ctx, odd)
	const key = "headstart.dev/scale-to-zero"
	err = r.eventuallyAnnotated(ctx, key, "soon")
	if err == nil {
		o.promised(ctx, "an event on the Service that names key and value", r.eventSays(odd, key, "soon"))
		o.promised(ctx, "a failed check that names key and value", r.checkSays(odd, key, "soon"))
		o.promised(ctx, "the gateways' configuration is Istio's alone", r.filterOf(odd, false))
		err = wait(ctx, quietFor)
	}
	err = errors.Join(err, r.annotate(context.WithoutCancel(ctx), key, "10m"), back(ctx))
	if err == nil {
		o.promised(ctx, "the gateways' configuration has the mended function again", r.filterOf(odd, true))
		err = wait(ctx, aftermath)
	}
	o.Odd = traffic.Stop()
	return err
}

// promised notes what does not come true in time.
func (o *Outcome) promised(ctx context.Context, what string, is func(context.Context) error) {
	o.promisedWithin(ctx, recoveryMost, what, is)
}

func (o *Outcome) promisedWithin(ctx context.Context, most time.Duration, what string, is func(context.Context) error) {
	if err := testbed.Poll(ctx, most, is); err != nil {
		o.broken("%s: %v", what, err)
	}
}

// rival is a second Service of the same pods, that does not agree with the first.
const rival = `apiVersion: v1
kind: Service
metadata: {name: faults-rival, namespace: default, labels: {part: faults}, annotations: {headstart.dev/scale-to-zero: 5m}}
spec: {selector: {app: faults-odd}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

// annotationsConflicting has two Services disagree, which no admission of one object can
// see. Neither counts as opted in until they agree.
func annotationsConflicting(ctx context.Context, r *rig, o *Outcome) error {
	traffic := r.loadOn(ctx, odd)
	err := r.Apply(ctx, rival)
	if err == nil {
		o.promised(ctx, "an event on the Service that names key and both values", r.eventSays(odd, "headstart.dev/scale-to-zero", "10m0s", "5m0s", "write the same value"))
		o.promised(ctx, "a failed check that names them", r.checkSays("headstart.dev/scale-to-zero", odd, "faults-rival"))
		o.promised(ctx, "the gateways' configuration is Istio's alone", r.filterOf(odd, false))
		err = wait(ctx, quietFor)
	}
	err = errors.Join(err, r.kubectl(context.WithoutCancel(ctx), "-n", world.Functions, "delete", "service", "faults-rival"))
	if err == nil {
		o.promised(ctx, "the gateways' configuration has the function again", r.filterOf(odd, true))
		err = wait(ctx, aftermath)
	}
	o.Odd = traffic.Stop()
	return err
}
