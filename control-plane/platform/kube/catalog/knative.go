package catalog

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// Headers by which Knative's activator knows a request's revision.
const (
	headerRevision  = "Knative-Serving-Revision"
	headerNamespace = "Knative-Serving-Namespace"
)

// knative reads a Knative Service that asks for Headstart. Knative goes on scaling it;
// its requests go the way they always do, with their input.
func (n *reading) knative(s *object.KnativeService) {
	if len(s.Annotations) == 0 {
		return
	}
	of := subject{name: n.namespace + "/" + s.Name, knative: true, annotations: s.Annotations}
	p, ok := n.policy(of)
	if !ok {
		return
	}
	for key, value := range map[string]string{policy.KeyWorkflow: p.Workflow, policy.KeyState: p.State} {
		if value != "" {
			n.refuse(of, reasonAnnotationsRefused, key, key+" is of Services of Kubernetes; remove it, and put it on such a Service")
			return
		}
	}
	revision, split := target(s.Traffic)
	if split != nil {
		n.refuse(of, reasonTrafficSplit, "spec.traffic", fmt.Sprintf("traffic is split over the revisions %s, which Headstart leaves alone; send all of it to one", strings.Join(split, ", ")))
		return
	}
	public := n.objects.Services[revision]
	if revision == "" || public == nil || !public.Knative {
		return // it is not ready yet
	}
	port, ok := httpPort(public.Ports)
	if !ok {
		return
	}
	f := &Function{Function: platform.Function{
		Name: of.name, Revision: revision, ServicePort: port.Port, HTTP2: saysHTTP2(port), RequestTimeout: revisionTimeout, PlatformReadiness: true, Policy: p}}
	f.Port = port.TargetPort.IntVal
	f.Hosts = append(n.hosts(s.Name), n.hosts(revision)...)
	f.Service = n.hosts(revision)[0]
	if host := hostOf(s.URL); host != "" && !slices.Contains(f.Hosts, host) {
		f.Hosts = append(f.Hosts, host)
	}
	if r := n.objects.Revisions[revision]; r != nil {
		f.Image = r.Image
		if r.TimeoutSeconds > 0 {
			f.RequestTimeout = time.Duration(r.TimeoutSeconds) * time.Second
		}
	}
	f.Relay = &platform.Relay{Address: net.JoinHostPort(relayHost(public, f.Service), strconv.Itoa(int(port.Port))),
		Headers: map[string]string{headerRevision: revision, headerNamespace: n.namespace}}
	if _, asks := s.Annotations[policy.KeyScaleToZero]; asks {
		n.problems = append(n.problems, Problem{Function: f.Name, Knative: true, Reason: reasonScaleToZeroNoEffect, Field: policy.KeyScaleToZero,
			Message: policy.KeyScaleToZero + " has no effect: Knative scales the function; remove it, and see autoscaling.knative.dev/window"})
	}
	if f.Policy.RunsAhead {
		f.Policy.RunsAhead = false
		n.problems = append(n.problems, Problem{Function: f.Name, Knative: true, Reason: reasonSandboxNotClosed, Field: policy.KeySpeculation,
			Message: "the function works on requests in their turn only: Knative's activator sends it requests by itself; use a Deployment and a Service for a function that is to run ahead"})
	}
	n.functions = append(n.functions, f)
}

// relayHost is the Service's own address, which needs no lookup, else its name.
func relayHost(s *object.Service, name string) string {
	if net.ParseIP(s.ClusterIP) != nil {
		return s.ClusterIP
	}
	return name
}

// target returns the revision that has all the traffic; split has the revisions if there
// are several. Targets without a share of it, which are there for their tags, do not count.
func target(traffic []object.Traffic) (revision string, split []string) {
	for _, t := range traffic {
		if t.Percent > 0 && t.Revision != "" && !slices.Contains(split, t.Revision) {
			split = append(split, t.Revision)
		}
	}
	switch len(split) {
	case 0:
		return "", nil
	case 1:
		return split[0], nil
	}
	return "", split
}

// hostOf is a URL's host, in lower case.
func hostOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
