package world

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/template"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/headstart-mesh/headstart/e2e/cluster/knative"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// gateway is the Gateway that functions are reached by.
const gateway = "default/functions"

// Knative is Knative Serving on the cluster.
type Knative struct {
	client  kubernetes.Interface
	via     *connrotation.Dialer // with whose connections the API server is asked
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
	dialer := connrotation.NewDialer((&net.Dialer{}).DialContext)
	config.Dial = dialer.DialContext
	via, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, via)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ingress, err := knative.NewIngress(config, via, gateway, log)
	if err != nil {
		return nil, err
	}
	k := &Knative{client: client, via: dialer}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.ingress.Go(func() {
		if err := ingress.Run(ctx); err != nil {
			log.Error("Knative's ingress", "error", err)
		}
	})
	return k, nil
}

// Close ends the ingress: what is deployed already goes on.
func (k *Knative) Close() {
	k.stop()
	k.ingress.Wait()
	k.via.CloseAll() // also those with watches that are just ending
}

// Labels and names of Knative's that tell how a function is.
const (
	serviceLabel  = "serving.knative.dev/service"
	revisionLabel = "serving.knative.dev/revision"
	publicLabel   = "networking.internal.knative.dev/serviceType=Public"
)

// Cold is nil when the function of the namespace Functions has no instance: Knative has
// scaled it to zero, its last pod is gone, and the activator is in its requests' way. It
// is for coldrun.Run.
func (k *Knative) Cold(ctx context.Context, function string) error {
	of := metav1.ListOptions{LabelSelector: serviceLabel + "=" + function}
	deployments, err := k.client.AppsV1().Deployments(Functions).List(ctx, of)
	if err != nil {
		return err
	}
	if len(deployments.Items) == 0 {
		return fmt.Errorf("function %s has no Deployment", function)
	}
	pods, err := k.client.CoreV1().Pods(Functions).List(ctx, of)
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		if *d.Spec.Replicas > 0 {
			return fmt.Errorf("function %s is not cold: %s has %d replicas", function, d.Name, *d.Spec.Replicas)
		}
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("function %s is not cold: %s is %s", function, pods.Items[0].Name, pods.Items[0].Status.Phase)
	}
	return k.activatorServes(ctx, deployments.Items[len(deployments.Items)-1].Labels[revisionLabel])
}

// activatorServes is nil when the activator, and nobody else, takes a revision's requests.
func (k *Knative) activatorServes(ctx context.Context, revision string) error {
	slices, err := k.client.DiscoveryV1().EndpointSlices(Functions).List(ctx, metav1.ListOptions{
		LabelSelector: publicLabel + "," + discoveryv1.LabelServiceName + "=" + revision})
	if err != nil {
		return err
	}
	found := false
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Namespace != knative.Namespace {
				return fmt.Errorf("revision %s is still reached at %s", revision, e.Addresses[0])
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("revision %s is reached nowhere", revision)
	}
	return nil
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
	archives, err := knative.Images(filepath.Join(w.Bin(), "knative"), dir)
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
	// Pod are the annotations of its pods.
	Pod map[string]string
	Env map[string]string
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
{{- range $k, $v := .Pod}}
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

// KnativePair are the two functions of a case: Knative alone, and the same with its input
// by Headstart.
func KnativePair(c coldrun.Case, env map[string]string) []KnativeFunction {
	return []KnativeFunction{{Name: c.Off, Env: env}, {Name: c.On, Env: env, Annotations: map[string]string{
		"headstart.dev/input": testbed.Input, "headstart.dev/store": StoreName}}}
}

// DeployKnative deploys functions and waits until Knative has them ready, which each has
// been once then: they become cold when Knative says so.
func (w *World) DeployKnative(ctx context.Context, functions ...KnativeFunction) error {
	var all bytes.Buffer
	for i, f := range functions {
		f.Env = maps.Clone(f.Env)
		if f.Env == nil {
			f.Env = map[string]string{}
		}
		maps.Copy(f.Env, map[string]string{"S3_ENDPOINT": w.Cloud.S3.Endpoint, "S3_REGION": testbed.Region,
			"S3_ACCESS_KEY_ID": w.Cloud.S3.Secret.Access, "S3_SECRET_ACCESS_KEY": w.Cloud.S3.Secret.Key})
		f.Namespace = cmp.Or(f.Namespace, Functions)
		functions[i].Namespace = f.Namespace
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
		if err := w.Tool(ctx, nil, "kubectl", "wait", "--for=condition=Ready", "--timeout=90s", "-n", f.Namespace, "ksvc/"+f.Name); err != nil {
			return fmt.Errorf("waiting for Knative: %w", err)
		}
	}
	return nil
}

// RemoveKnative removes functions and waits until they are gone.
func (w *World) RemoveKnative(ctx context.Context, functions ...KnativeFunction) error {
	for _, f := range functions {
		if err := w.Tool(ctx, nil, "kubectl", "-n", cmp.Or(f.Namespace, Functions), "delete", "ksvc/"+f.Name, "--ignore-not-found", "--cascade=foreground", "--timeout=90s"); err != nil {
			return err
		}
	}
	return nil
}
