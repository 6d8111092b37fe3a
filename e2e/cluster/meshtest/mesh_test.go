//go:build cluster

package meshtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/functions/witness/report"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// The identities that a function's sidecar sees.
const (
	gatewayIdentity = "spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
	daemonIdentity  = "spiffe://cluster.local/ns/headstart-system/sa/headstart-node"
)

// service is a witness and the ways to it through gateways.
type service struct {
	name, namespace string
	replicas        int
	// function: it has annotations of Headstart's; an input among them, unless withoutInput.
	function, withoutInput bool
	// observed: its input is only named.
	observed bool
	// gateways are Gateway objects, namespace/name. Empty: its namespace's.
	gateways []string
	// port is the Service's name for its port, and so its protocol. Empty: http.
	port string
}

func (s service) host() string { return s.name + "." + s.namespace + ".test" }

// cluster is the name of the service's cluster in an Envoy.
func (s service) cluster() string {
	return fmt.Sprintf("outbound|80||%s.%s.svc.cluster.local", s.name, s.namespace)
}

func (s service) manifest() string {
	annotations := ""
	switch {
	case s.observed:
		annotations = fmt.Sprintf(`{headstart.dev/mode: observe, headstart.dev/input: %q, headstart.dev/store: footage}`, testbed.Input)
	case s.withoutInput:
		annotations = "{headstart.dev/scale-to-zero: 10m}"
	case s.function:
		annotations = fmt.Sprintf(`{headstart.dev/scale-to-zero: 10m, headstart.dev/input: %q, headstart.dev/store: footage}`, testbed.Input)
	}
	gateways, port := "["+strings.Join(s.gateways, ", ")+"]", s.port
	if len(s.gateways) == 0 {
		gateways = "[" + s.namespace + "/meshtest]"
	}
	if port == "" {
		port = "http"
	}
	return strings.NewReplacer("NAMESPACE", s.namespace, "NAME", s.name, "REPLICAS", fmt.Sprint(s.replicas), "ANNOTATIONS", annotations,
		"GATEWAYS", gateways, "PORT", port, "IMAGE", witnessImage, "HOST", s.host()).Replace(serviceManifest)
}

const serviceManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      runtimeClassName: headstart
      terminationGracePeriodSeconds: 2
      containers:
      - name: witness
        image: IMAGE
        imagePullPolicy: Never
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE, annotations: ANNOTATIONS}
spec:
  selector: {app: NAME}
  ports: [{name: PORT, port: 80, targetPort: 8080}]
---
` + gatewayManifest + `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  hosts: [HOST]
  gateways: GATEWAYS
  http: [{route: [{destination: {host: NAME.NAMESPACE.svc.cluster.local, port: {number: 80}}}]}]
`

// gatewayManifest has Istio's gateway take requests to the services of a namespace.
const gatewayManifest = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: meshtest, namespace: NAMESPACE}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*.NAMESPACE.test"]}]
`

// pod is a running one.
type pod struct{ namespace, name, ip, uid string }

// findPod returns the one ready pod with these labels.
func findPod(ctx context.Context, namespace, selector string) (p pod, err error) {
	out, err := in.Output(ctx, nil, "kubectl", "-n", namespace, "get", "pods", "-l", selector, "-o", "json")
	if err != nil {
		return p, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name, UID, DeletionTimestamp string }
			Status   struct {
				PodIP      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return p, err
	}
	for _, i := range list.Items {
		for _, c := range i.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && i.Metadata.DeletionTimestamp == "" {
				return pod{namespace: namespace, name: i.Metadata.Name, ip: i.Status.PodIP, uid: i.Metadata.UID}, nil
			}
		}
	}
	return p, fmt.Errorf("no pod of %s is ready in %s", selector, namespace)
}

func readyPod(t *testing.T, namespace, selector string) (p pod) {
	t.Helper()
	eventually(t, "a pod of "+selector, func(ctx context.Context) (err error) {
		p, err = findPod(ctx, namespace, selector)
		return err
	})
	return p
}

func ingressGateway(t *testing.T) pod { return readyPod(t, "istio-system", "app=istio-ingressgateway") }

// admin asks the Envoy of a pod.
func (p pod) admin(ctx context.Context, path string) (string, error) {
	e, err := in.Envoy(p.uid)
	if err != nil {
		return "", err
	}
	defer e.Close()
	return e.Get(ctx, path)
}

// deploy applies the services and waits until the gateway knows them; functions' endpoints
// come from us then.
func deploy(t *testing.T, through pod, services ...service) {
	t.Helper()
	for _, s := range services {
		apply(t, s.manifest())
	}
	for _, s := range services {
		known(t, through, s)
		if s.replicas > 0 {
			readyPod(t, s.namespace, "app="+s.name)
		}
	}
}

// known waits until a gateway routes to the service, and for a function until it has the
// daemon as an endpoint.
func known(t *testing.T, through pod, s service) {
	t.Helper()
	eventually(t, s.host()+" at the gateway", func(ctx context.Context) error {
		clusters, err := through.admin(ctx, "/clusters")
		if err != nil {
			return err
		}
		if s.function && !strings.Contains(clusters, s.cluster()+"::/run/headstart/gateway/ingress.sock::") {
			return errors.New("no endpoint of the daemon's")
		}
		routes, err := through.admin(ctx, "/config_dump?resource=dynamic_route_configs")
		if err == nil && !strings.Contains(routes, s.host()) {
			err = errors.New("no route")
		}
		return err
	})
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	report report.Report
}

func (a answer) String() string { return fmt.Sprintf("%d %v %.400s", a.status, a.header, a.text) }

// from tells whether the sidecar says that the request was of this identity.
func (a answer) from(identity string) bool {
	return strings.Contains(a.report.Header.Get("X-Forwarded-Client-Cert"), "URI="+identity)
}

// client takes a connection for each request: one that was accepted before a gateway's
// listener changed stays with the old one's filters until that is drained, 45 s.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// call asks for a service through a gateway's pod; input tells whether it names one.
func call(ctx context.Context, through pod, s service, input bool) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+through.ip+":8080/", nil)
	if err != nil {
		return a, err
	}
	r.Host = s.host()
	if input {
		r.Header.Set("x-bucket", testbed.Bucket)
		r.Header.Set("x-key", inputKey)
	}
	resp, err := client.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return a, err
	}
	a = answer{status: resp.StatusCode, header: resp.Header, text: string(b)}
	if a.status == http.StatusOK {
		err = json.Unmarshal(b, &a.report)
	}
	return a, err
}

// ok is call for a request that has to work at once.
func ok(t *testing.T, through pod, s service, input bool) answer {
	t.Helper()
	a, err := call(t.Context(), through, s, input)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s, input %v: %v %v", s.host(), input, a, err)
	}
	if input && (a.report.Body.SHA256 != digest || a.report.File.SHA256 != digest) {
		t.Errorf("%s: body %+v, file %+v, not %s", s.host(), a.report.Body, a.report.File, digest)
	}
	if input && a.header.Get(filterapi.HeaderRequest) == "" {
		t.Errorf("%s: answer without an id: %v", s.host(), a.header)
	}
	return a
}

// endpoints asks whether the gateway has a healthy pod of the service.
func endpoints(through pod, s service) func(context.Context) error {
	return func(ctx context.Context) error {
		p, err := findPod(ctx, s.namespace, "app="+s.name)
		if err != nil {
			return err
		}
		clusters, err := through.admin(ctx, "/clusters")
		if err == nil && !strings.Contains(clusters, s.cluster()+"::"+p.ip+":8080::") {
			err = errors.New("no endpoint")
		}
		return err
	}
}
