package world

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// Fire is the sample function's image, which all nodes have.
	Fire = "headstart.local/fire:1"
	// gatewayPort is where the Service of the gateways takes requests to functions.
	gatewayPort = 80
)

func functionImage(program, dir string) (string, error) {
	var b bytes.Buffer
	err := ociimage.Build(&b, ociimage.Image{Ref: Fire, Entrypoint: []string{"/fire"}, Files: map[string]ociimage.File{"/fire": {Source: program, Mode: 0o755}}})
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "fire.tar")
	return archive, os.WriteFile(archive, b.Bytes(), 0o644)
}

// Function is the sample function as it is deployed.
type Function struct {
	Name     string
	Replicas int
	// Annotations are the Service's.
	Annotations map[string]string
	Env         map[string]string
	// Node is the only one it may run on; empty: any.
	Node string
	// Namespace is Functions if it is empty.
	Namespace string
	// Plain: its pods do without the runtime class headstart, and so get inputs in the
	// body only.
	Plain bool
	// StatefulSet: its pods are one's, not a Deployment's.
	StatefulSet bool
	// Part is a label of all its objects, to remove them by.
	Part string
}

// Host is what requests to the function name.
func (f Function) Host() string { return f.Name + ".example.com" }

var functionManifest = template.Must(template.New("function").Parse(`apiVersion: apps/v1
kind: {{if .StatefulSet}}StatefulSet{{else}}Deployment{{end}}
metadata: {name: {{.Name}}, namespace: {{.Namespace}}, labels: {part: {{printf "%q" .Part}}}}
spec:
  replicas: {{.Replicas}}
{{- if .StatefulSet}}
  serviceName: {{.Name}}
{{- end}}
  selector: {matchLabels: {app: {{.Name}}}}
  template:
    metadata:
      labels: {app: {{.Name}}}
    spec:
{{- if not .Plain}}
      runtimeClassName: headstart
{{- end}}
      terminationGracePeriodSeconds: 10
{{- with .Node}}
      nodeSelector: {kubernetes.io/hostname: {{.}}}
{{- end}}
      containers:
      - name: fire
        image: {{.Image}}
        imagePullPolicy: Never
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        env:
{{- range $k, $v := .Env}}
        - {name: {{$k}}, value: {{printf "%q" $v}}}
{{- end}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
  labels: {part: {{printf "%q" .Part}}}
  annotations:
    example.com/function: {{.Name}}
{{- range $k, $v := .Annotations}}
    {{$k}}: {{printf "%q" $v}}
{{- end}}
spec:
  selector: {app: {{.Name}}}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: {{.Name}}, namespace: {{.Namespace}}, labels: {part: {{printf "%q" .Part}}}}
spec:
  hosts: [{{.Host}}]
  gateways: [default/functions]
  http: [{route: [{destination: {host: {{.Name}}.{{.Namespace}}.svc.cluster.local, port: {number: 80}}}]}]
---
`))

// gatewayManifest opens Istio's gateway to functions.
const gatewayManifest = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: functions, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`

// Deploy deploys functions, each with a way through the gateway.
func (w *World) Deploy(ctx context.Context, functions ...Function) error {
	var all bytes.Buffer
	for _, f := range functions {
		env := map[string]string{"S3_ENDPOINT": w.Cloud.S3.Endpoint, "S3_REGION": testbed.Region,
			"S3_ACCESS_KEY_ID": w.Cloud.S3.Secret.Access, "S3_SECRET_ACCESS_KEY": w.Cloud.S3.Secret.Key}
		for k, v := range f.Env {
			env[k] = v
		}
		f.Env = env
		if f.Namespace == "" {
			f.Namespace = Functions
		}
		if err := functionManifest.Execute(&all, struct {
			Function
			Image string
		}{f, Fire}); err != nil {
			return err
		}
	}
	all.WriteString(gatewayManifest)
	if err := w.Apply(ctx, all.String()); err != nil {
		return err
	}
	return w.awaitRoutes(ctx, functions)
}

// daemonEndpoint is in a function's cluster once its endpoints are Headstart's.
const daemonEndpoint = "/run/headstart/gateway/ingress.sock"

// routesTimeout is many times what istiod takes for a hundred functions.
const routesTimeout = time.Minute

// awaitRoutes waits until the gateway knows the functions, and listens: with its first route it has the filter pulled
// before. No request asks for them, which would start them.
func (w *World) awaitRoutes(ctx context.Context, functions []Function) error {
	envoy, err := w.GatewayEnvoy(ctx)
	if err != nil {
		return err
	}
	defer envoy.Close()
	gateway, err := w.Gateway(ctx)
	if err != nil {
		return err
	}
	return testbed.Poll(ctx, routesTimeout, func(ctx context.Context) error {
		routes, err := envoy.Get(ctx, "/config_dump?resource=dynamic_route_configs")
		if err != nil {
			return err
		}
		clusters, err := envoy.Get(ctx, "/clusters?filter=svc.cluster.local")
		if err != nil {
			return err
		}
		for _, f := range functions {
			if !strings.Contains(routes, `"`+f.Host()+`"`) {
				return fmt.Errorf("the gateway has no route to %s", f.Host())
			}
			if len(f.Annotations) > 0 && !strings.Contains(clusters, "||"+f.Name+"."+cmp.Or(f.Namespace, Functions)+".svc.cluster.local::"+daemonEndpoint+"::") {
				return fmt.Errorf("the gateway has no endpoints of function %s", f.Name)
			}
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", gateway.String())
		if err != nil {
			return fmt.Errorf("the gateway does not listen: %w", err)
		}
		return conn.Close()
	})
}

// Undeploy removes all functions of a part.
func (w *World) Undeploy(ctx context.Context, part string) error {
	return w.Tool(ctx, nil, "kubectl", "-n", Functions, "delete", "services,deployments,virtualservices", "--selector", "part="+part, "--wait=true", "--timeout=60s")
}

// UndeployAll removes all functions, also Knative's, and waits for the end of their pods.
func (w *World) UndeployAll(ctx context.Context) error {
	steps := [][]string{{"delete", "deployments,virtualservices,gateways.networking.istio.io", "--all"},
		{"delete", "services", "--selector", "part"}} // and not Kubernetes' own
	if kinds, err := w.Output(ctx, nil, "kubectl", "api-resources", "--api-group=serving.knative.dev", "-o", "name"); err != nil {
		return err
	} else if strings.Contains(kinds, "services.serving.knative.dev") {
		steps = append([][]string{{"delete", "services.serving.knative.dev", "--all"}}, steps...)
	}
	for _, step := range append(steps, []string{"wait", "--for=delete", "pods", "--all", "--timeout=90s"}) {
		if err := w.Tool(ctx, nil, "kubectl", append([]string{"-n", Functions}, step...)...); err != nil {
			return err
		}
	}
	return nil
}
