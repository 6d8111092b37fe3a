//go:build cluster

package meshtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// workflowManifest is a workflow, and the Service that takes its requests.
const workflowManifest = `
apiVersion: headstart.dev/v1alpha1
kind: Workflow
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  document: {dsl: '1.0.0', namespace: NAMESPACE, name: NAME, version: '1.0.0'}
  do:
TASKS
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE, annotations: {headstart.dev/workflow: NAME}}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  hosts: [NAME.NAMESPACE.test]
  gateways: [NAMESPACE/meshtest]
  http: [{route: [{destination: {host: NAME.NAMESPACE.svc.cluster.local, port: {number: 80}}}]}]
`

func applyWorkflow(t *testing.T, s service, tasks string) {
	t.Helper()
	apply(t, strings.NewReplacer("NAMESPACE", s.namespace, "NAME", s.name, "TASKS", tasks).Replace(workflowManifest))
}

// ready waits until a workflow's object says whether it can be run.
func ready(t *testing.T, s service, want string) (message string) {
	t.Helper()
	eventually(t, "the workflow's condition", func(ctx context.Context) error {
		said, err := in.Output(ctx, nil, "kubectl", "-n", s.namespace, "get", "workflow", s.name, "-o",
			`jsonpath={.metadata.generation} {.status.conditions[?(@.type=="Ready")].observedGeneration} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}`)
		if err != nil {
			return err
		}
		words := strings.SplitN(said, " ", 4)
		if len(words) < 4 || words[0] != words[1] || words[2] != want {
			return fmt.Errorf("it says %q", said)
		}
		message = words[3]
		return nil
	})
	return message
}

// runOf has a workflow answer a request by a gateway, and returns the answer. key is the request's Idempotency-Key; empty: it has none.
func runOf(ctx context.Context, through pod, w service, body, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+through.ip+":8080/", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Host = w.host()
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %.500s", resp.StatusCode, b)
	}
	return strings.TrimSpace(string(b)), err
}

// A workflow behind a Service is a function of the mesh; its functions are scaled from zero for it, and are reached through their
// sidecars.
func TestAWorkflow(t *testing.T) {
	through := ingressGateway(t)
	strictly := service{namespace: strict, name: "wf-strict", function: true, withoutInput: true}
	plainly := service{namespace: plain, name: "wf-plain", function: true, withoutInput: true}
	w := service{namespace: strict, name: "wf", function: true}
	deploy(t, through, strictly, plainly)
	apply(t, `
apiVersion: v1
kind: Service
metadata: {name: wf-plain, namespace: `+plain+`, annotations: {headstart.dev/scale-to-zero: 10m, headstart.dev/callers: `+strict+`}}
spec: {selector: {app: wf-plain}, ports: [{name: http, port: 80, targetPort: 8080}]}
`)
	applyWorkflow(t, w, `  - both:
      fork:
        branches:
        - own: {call: http, with: {method: post, endpoint: 'http://wf-strict.`+strict+`/{what}', body: '${ . }'}}
        - other: {call: http, with: {method: post, endpoint: 'http://wf-plain.`+plain+`.svc.cluster.local/', body: '${ . }'}}
      output: {as: '{paths: map(.path), bytes: map(.body.bytes)}'}
`)
	ready(t, w, "True")
	known(t, through, w)
	eventually(t, "the workflow's answer", func(ctx context.Context) error { // the functions' callers may be known a moment later
		got, err := runOf(ctx, through, w, `{"what":"x"}`, "")
		if want := `{"bytes":[12,12],"paths":["/x","/"]}`; err == nil && got != want {
			err = fmt.Errorf("it answers %.500s", got)
		}
		return err
	})
	applyWorkflow(t, w, "  - one: {emit: {event: {}}}\n")
	if message := ready(t, w, "False"); !strings.Contains(message, `spec.do.0.one.emit: "emit" is not supported`) {
		t.Errorf("a wrong one says %q", message)
	}
	eventually(t, "the Service's event", func(ctx context.Context) error {
		said, err := in.Output(ctx, nil, "kubectl", "-n", strict, "get", "events", "--field-selector", "involvedObject.name=wf", "-o", "jsonpath={.items[*].reason}")
		if err == nil && !strings.Contains(said, "WorkflowRefused") {
			err = fmt.Errorf("events %q", said)
		}
		return err
	})
	kubectl(t, "-n", strict, "delete", "workflow,service,virtualservice", "wf")
}
