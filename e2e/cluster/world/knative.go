package world

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"text/template"

	"github.com/headstart-mesh/headstart/e2e/cluster/knative"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// gateway is the Gateway that functions are reached by.
const gateway = "default/functions"

// Knative is Knative Serving on the cluster.
type Knative struct {
	stop    context.CancelFunc
	ingress sync.WaitGroup
}

// InstallKnative installs Knative Serving, and serves its ingress until Close, which
// leaves the rest. It is for a cluster that has it already, too.
func (w *World) InstallKnative(ctx context.Context) (*Knative, error) {
	w.config.Progress("Knative Serving")
	if err := w.importKnative(ctx); err != nil {
		return nil, err
	}
	kubectl := func(ctx context.Context, input io.Reader, args ...string) error {
		return w.Tool(ctx, input, "kubectl", args...)
	}
	if err := knative.Install(ctx, kubectl, w.Source("e2e/cluster/tools/knative")); err != nil {
		return nil, err
	}
	if err := w.Apply(ctx, gatewayManifest); err != nil {
		return nil, err
	}
	config, err := w.REST()
	if err != nil {
		return nil, err
	}
	ingress, err := knative.NewIngress(config, gateway, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return nil, err
	}
	k := &Knative{}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.ingress.Go(func() { ingress.Run(ctx) })
	return k, nil
}

// Close ends the ingress: what is deployed already goes on.
func (k *Knative) Close() {
	k.stop()
	k.ingress.Wait()
}

// importKnative puts the images on the nodes, unless they are there.
func (w *World) importKnative(ctx context.Context) error {
	missing := false
	for _, n := range w.Nodes() {
		have, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet")
		if err != nil {
			return err
		}
		for _, ref := range knative.References() {
			missing = missing || !strings.Contains(have, ref+"\n")
		}
	}
	if !missing {
		return nil
	}
	dir, err := os.MkdirTemp(w.config.WorkDir, "knative-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archives, err := knative.Images(w.bin+"/knative", dir)
	if err != nil {
		return err
	}
	for _, a := range archives {
		if err := w.ImportImage(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// KnativeFunction is the sample function as a Knative Service. Without annotations of
// Headstart's it is what Knative makes of it alone.
type KnativeFunction struct {
	Name string
	// Annotations are the Knative Service's.
	Annotations map[string]string
	// TemplateAnnotations are its revisions'.
	TemplateAnnotations map[string]string
	Env                 map[string]string
	// Node is the only one it may run on; empty: any.
	Node string
	// Namespace is Functions if it is empty.
	Namespace string
}

// Host is what requests to the function name.
func (f KnativeFunction) Host() string { return f.Name + "." + knative.Domain }

var knativeManifest = template.Must(template.New("knative function").Parse(`apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
  annotations:
    example.com/function: {{.Name}}
{{- range $k, $v := .Annotations}}
    {{$k}}: {{printf "%q" $v}}
{{- end}}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/window: 6s
{{- range $k, $v := .TemplateAnnotations}}
        {{$k}}: {{printf "%q" $v}}
{{- end}}
    spec:
      runtimeClassName: headstart
{{- with .Node}}
      nodeSelector: {kubernetes.io/hostname: {{.}}}
{{- end}}
      containers:
      - image: {{.Image}}
        imagePullPolicy: Never
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz}}
        env:
{{- range $k, $v := .Env}}
        - {name: {{$k}}, value: {{printf "%q" $v}}}
{{- end}}
---
`))

// DeployKnative deploys functions and waits until Knative has them ready, which each has
// been once then: they become cold when Knative says so.
func (w *World) DeployKnative(ctx context.Context, functions ...KnativeFunction) error {
	var all bytes.Buffer
	wait := []string{"wait", "--for=condition=Ready", "--timeout=90s"}
	for _, f := range functions {
		env := map[string]string{"S3_ENDPOINT": w.Cloud.S3.Endpoint, "S3_REGION": testbed.Region,
			"S3_ACCESS_KEY_ID": w.Cloud.S3.Secret.Access, "S3_SECRET_ACCESS_KEY": w.Cloud.S3.Secret.Key}
		maps.Copy(env, f.Env)
		f.Env = env
		if f.Namespace == "" {
			f.Namespace = Functions
		}
		if err := knativeManifest.Execute(&all, struct {
			KnativeFunction
			Image string
		}{f, Fire}); err != nil {
			return err
		}
	}
	if err := w.Apply(ctx, all.String()); err != nil {
		return err
	}
	for _, f := range functions {
		namespace := f.Namespace
		if namespace == "" {
			namespace = Functions
		}
		if err := w.Tool(ctx, nil, "kubectl", append(wait, "-n", namespace, "ksvc/"+f.Name)...); err != nil {
			return fmt.Errorf("waiting for Knative: %w", err)
		}
	}
	return nil
}
