package coordinator

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/nodelabel"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// gatherTime is how long a control plane that has just begun waits for the nodes, which try
	// once a second to connect.
	gatherTime = 3 * time.Second
	// distancesWithin is how long it waits to hear how far nodes are from each other: they are
	// told within a second or two of whom to measure, and tell what they know within five.
	distancesWithin = 10 * time.Second
)

// ClusterConfig is what only Kubernetes has.
type ClusterConfig struct {
	// Namespace is the control plane's own.
	Namespace string
	// InCharge says whether it is this control plane that writes the mesh's configuration and
	// scales to zero.
	InCharge func() bool
	// Namespaces are those that may have functions; none: all may.
	Namespaces []string
	// Mesh is where that configuration goes.
	Mesh *istio.Writer
	// FunctionsPerNamespace is how many functions a namespace may have; 0: catalog.DefaultFunctionsMost.
	FunctionsPerNamespace int
	// LabelNodes: nodes have labels for the volumes that they keep.
	LabelNodes bool
}

// Cluster is the coordinator of a Kubernetes cluster, with Istio's gateways.
type Cluster struct {
	*common
	config   ClusterConfig
	labels   *nodelabel.Labels
	Platform *kube.Platform

	// Of mu.
	told  map[string]*nodeapi.Instances // by node that is connected
	began time.Time                     // when there was first something to tell gateways
}

// NewCluster returns the coordinator of the cluster that clients reach. The caller runs Platform.
func NewCluster(clients kube.Clients, config ClusterConfig, parts Parts) *Cluster {
	gateways := xds.Config{IngressSocket: istio.IngressSocket, Endpoints: platform.Function.AssignmentName,
		Cluster: istio.ClusterOf}
	c := &Cluster{common: newCommon(parts, gateways, config.InCharge), config: config, told: map[string]*nodeapi.Instances{}}
	c.known, c.published = c.distancesKnown, c.tellOthers
	c.Platform = kube.New(clients, kube.Config{Namespace: config.Namespace, Stores: parts.Stores, Destinations: parts.Destinations, Namespaces: config.Namespaces,
		FunctionsPerNamespace: config.FunctionsPerNamespace, InCharge: config.InCharge}, c.events, parts.Log)
	c.tenants = c.Platform.Tenants
	c.begin(c.Platform, c, parts)
	c.labels = &nodelabel.Labels{Nodes: clients.Kubernetes.CoreV1().Nodes(), Keeps: c.Nodes.Keeps, Log: parts.Log}
	return c
}

// What the nodes say.

// Joined implements nodes.Handler. It tells the node what runs on it: from then on the node hears
// of changes.
func (c *Cluster) Joined(node string, _ *nodeapi.Register) {
	c.Platform.NodeJoined(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[node] = nil
	c.passes.Joined(node)
	c.passes.Tell(c.tenants(), time.Now()) // what the instances need may come from other nodes
	c.tellInstances(node)
	c.triggers.Joined(node)
	c.triggers.Tell(c.Platform.State().Functions)
}

// Left implements nodes.Handler. It forgets what the node was told.
func (c *Cluster) Left(node string) {
	c.Platform.NodeLeft(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, node)
	c.triggers.Tell(c.Platform.State().Functions)
}

// Instance implements nodes.Handler with nothing: the API server says how pods are.
func (c *Cluster) Instance(string, *nodeapi.InstanceStatus) {}

// What is told to them.

// Run keeps nodes, gateways and the mesh up to date until ctx ends.
func (c *Cluster) Run(ctx context.Context) { c.keepPublished(ctx) }

// Lead does what only one control plane may do, as long as it is this one's turn. All nodes
// follow it meanwhile: it knows which instances it withdraws.
func (c *Cluster) Lead(ctx context.Context) {
	c.budget.Begin()
	c.Nodes.SetInCharge(true)
	defer c.Nodes.SetInCharge(false)
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { c.budget.Run(ctx) })
	if c.config.LabelNodes {
		others.Go(func() { c.labels.Run(ctx) })
	}
	c.config.Mesh.Run(ctx)
}

// Gather waits until the nodes are back, before it is said which of them consume streams.
func (c *Cluster) Gather(ctx context.Context) {
	select {
	case <-time.After(gatherTime):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.triggers.Begin(c.Platform.State().Functions)
	case <-ctx.Done():
	}
}

// tellOthers tells nodes and the mesh; the caller holds mu.
func (c *Cluster) tellOthers(state platform.State) {
	c.Nodes.SetFunctions(c.message(state.Functions, kube.Message))
	c.triggers.Tell(state.Functions)
	for node := range c.told {
		c.tellInstances(node)
	}
	config, err := istio.PluginConfig()
	if err != nil {
		c.log.Error("the filter keeps its last configuration", "error", err)
		return
	}
	c.config.Mesh.Set(istio.Desired{Functions: istio.Functions(state), PluginConfig: config})
}

// distancesKnown says whether requests can be spread by distance, or nobody waits for that any
// longer; the caller holds mu.
func (c *Cluster) distancesKnown(state platform.State, connected []string, now time.Time) bool {
	if c.began.IsZero() {
		c.began = now
	}
	return now.Sub(c.began) >= distancesWithin || c.planner.Known(state, connected, now)
}

// tellInstances tells a node what has changed of its own; the caller holds mu.
func (c *Cluster) tellInstances(node string) {
	m := c.Platform.InstancesOf(node)
	if before := c.told[node]; before != nil && proto.Equal(before, m) {
		return
	}
	if err := c.Nodes.Send(node, &nodeapi.ControlMessage{
		Kind: &nodeapi.ControlMessage_Instances{Instances: m},
	}); err != nil {
		return // it is told again when it is back
	}
	c.told[node] = m
}

// What the operator asks.

var errUseKubectl = &platform.Refusal{Status: http.StatusMethodNotAllowed, Reason: "UseKubectl",
	Message: "on Kubernetes functions are Services; annotate and delete those with kubectl"}

// Apply refuses: the API server is where functions are deployed.
func (c *Cluster) Apply(io.Reader) ([]admin.Applied, error) { return nil, errUseKubectl }

// Delete refuses as well.
func (c *Cluster) Delete(string) error { return errUseKubectl }

// RunJob refuses, too: a Job of Kubernetes has the same annotations.
func (c *Cluster) RunJob(context.Context, io.Reader) (admin.JobOutcome, error) {
	return admin.JobOutcome{}, errUseKubectl
}

// Logs refuses: the kubelet has them.
func (c *Cluster) Logs(context.Context, admin.LogOptions, func(admin.LogLine) error) error {
	return &platform.Refusal{
		Status: http.StatusMethodNotAllowed, Reason: "UseKubectl",
		Message: "on Kubernetes functions are pods; use kubectl logs",
	}
}

// Status is all that the control plane knows, as of now.
func (c *Cluster) Status() admin.Status {
	state := c.Platform.State()
	s := c.status(state, func(f platform.Function) admin.Function { return c.function(f, state) })
	s.Platform, s.InCharge, s.Mesh = admin.Kubernetes, c.config.InCharge(), c.meshStatus()
	for _, name := range c.Platform.Refused() {
		s.Functions = append(s.Functions, admin.Function{
			Name: name, Refused: true, Hosts: []string{}, Instances: []admin.Instance{}, Events: c.events.Of(name),
		})
	}
	return s
}

func (c *Cluster) function(f platform.Function, state platform.State) admin.Function {
	about := c.Platform.About(f.Name)
	fn := admin.Function{Workload: about.Workload, Scaler: about.Scaler, Instances: []admin.Instance{}, Connections: about.Connections}
	for _, in := range append(about.Instances, state.Instances...) {
		if in.Function == f.Name {
			fn.Instances = append(fn.Instances, admin.Instance{
				ID: in.ID, Pod: podName(in.ID), Node: in.Node, Phase: in.Phase, Address: in.Address,
			})
		}
	}
	for _, e := range state.Endpoints {
		shown := slices.ContainsFunc(fn.Instances, func(in admin.Instance) bool { return in.Address == e.Address })
		if e.Function == f.Name && !e.Relay && !shown {
			fn.Endpoints = append(fn.Endpoints, e.Address)
		}
	}
	return fn
}

// podName is the middle of namespace_name_uid, none of which has an underscore.
func podName(id string) string {
	parts := strings.Split(id, "_")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}

// meshStatus is nil in a control plane that does not look at the mesh: another one does.
func (c *Cluster) meshStatus() *admin.Mesh {
	if !c.config.InCharge() {
		return nil
	}
	s := c.config.Mesh.Status()
	m := &admin.Mesh{Installed: s.Installed, Objects: s.Objects}
	for _, p := range s.Problems {
		m.Problems = append(m.Problems, admin.MeshProblem{
			Object: p.Object, Cause: string(p.Cause), Message: p.Message, Fix: p.Fix,
		})
	}
	if err := c.Platform.Healthy(); err != nil {
		m.Problems = append(m.Problems, admin.MeshProblem{
			Object: "Kubernetes API", Cause: string(istio.Unavailable), Message: err.Error(), Fix: "see the message",
		})
	}
	return m
}
