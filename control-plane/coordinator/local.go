package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/functionlog"
	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

// applyTimeout bounds how long deploying waits for the gateways. One that has just started takes
// no routes while it compiles its filters, 10 s on a busy machine.
const applyTimeout = 20 * time.Second

// awayEvery is how often is looked whether nodes are back.
const awayEvery = 100 * time.Millisecond

// LocalConfig is what only one machine has.
type LocalConfig struct {
	StateDir, RunDir string
	// LargestInput is what the nodes' buffers can take, in bytes; 0: not known.
	LargestInput int64
}

// Local is the coordinator of one machine, whose instances and gateways are Headstart's own.
type Local struct {
	*common
	config   LocalConfig
	Platform *local.Platform
}

// NewLocal returns the coordinator with the functions of StateDir. The caller runs Platform.
func NewLocal(config LocalConfig, parts Parts) (_ *Local, err error) {
	name := func(f platform.Function) string { return f.Name }
	c := &Local{common: newCommon(parts, xds.Config{Endpoints: name, Cluster: name}, nil), config: config}
	c.tenants = c.allOfThem
	if c.Platform, err = local.Open(
		filepath.Join(config.StateDir, "functions.json"), c.Nodes, c, c.events, c.log,
	); err != nil {
		return nil, err
	}
	c.begin(c.Platform, c, parts)
	c.tellNodes()
	c.budget.Begin()
	return c, nil
}

// What the nodes say.

// Joined implements nodes.Handler.
func (c *Local) Joined(node string, r *nodeapi.Register) {
	c.Platform.NodeJoined(node, r.GetInstances())
	c.triggers.Joined(node)
	c.passes.Joined(node)
	c.triggers.Tell(c.Platform.State().Functions)
}

// Left implements nodes.Handler.
func (c *Local) Left(node string) {
	c.Platform.NodeLeft(node)
	c.triggers.Tell(c.Platform.State().Functions)
}

// Instance implements nodes.Handler.
func (c *Local) Instance(node string, s *nodeapi.InstanceStatus) {
	c.Platform.InstanceChanged(node, s)
}

// What is told to them.

// Run keeps gateways and nodes up to date until ctx ends.
func (c *Local) Run(ctx context.Context) {
	select {
	case <-c.Platform.Recovered(): // until then hot functions would look cold
	case <-ctx.Done():
		return
	}
	c.triggers.Begin(c.Platform.State().Functions)
	var dealing sync.WaitGroup
	defer dealing.Wait()
	dealing.Go(func() { c.budget.Run(ctx) })
	c.keepPublished(ctx)
}

// allOfThem are the tenants of the nodes: all namespaces, as each node has a gateway for all functions.
func (c *Local) allOfThem() map[string][]string {
	all := map[string][]string{}
	for node := range c.Nodes.Connected() {
		all[node] = []string{capability.AllNamespaces}
	}
	return all
}

// Settled implements local.Routes.
func (c *Local) Settled(ctx context.Context) error {
	select {
	case <-c.Platform.Recovered():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.Publish()
	tick := time.NewTicker(awayEvery)
	defer tick.Stop()
	for {
		// A node whose daemon is being restarted has a gateway that goes on with what it has.
		away := c.Platform.NodesAway()
		if err := c.Gateways.Settled(ctx); err != nil {
			return err
		}
		if err := c.Nodes.Confirm(ctx); err != nil || !away {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for nodes that are away: %w", context.Cause(ctx))
		}
	}
}

// tellNodes tells the nodes what they may serve.
func (c *Local) tellNodes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	functions := c.Platform.State().Functions
	c.Nodes.SetFunctions(c.message(functions, local.Message))
	c.triggers.Tell(functions)
}

// What the operator asks.

// Apply implements admin.Backend. Who deploys a function calls it next: the gateways know it when
// Apply returns.
func (c *Local) Apply(manifest io.Reader) ([]admin.Applied, error) {
	functions, err := knative.Parse(manifest, c.stores, c.destinations)
	if err != nil {
		return nil, manifestRefused(err)
	}
	changes, err := c.Platform.Apply(functions)
	if err != nil {
		return nil, err
	}
	c.tellNodes()
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	if err := c.Settled(ctx); err != nil {
		c.log.Warn("a gateway has not confirmed the functions yet", "error", err)
	}
	applied := make([]admin.Applied, len(functions))
	for i, f := range functions {
		applied[i] = admin.Applied{Function: f.Name, Change: changes[i], Warnings: c.warnings(f)}
	}
	return applied, nil
}

func manifestRefused(err error) error {
	return &platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "ManifestRefused", Message: err.Error()}
}

// warnings are what of a function will not work on these nodes.
func (c *Local) warnings(f platform.Function) []string {
	if c.config.LargestInput == 0 || !f.Policy.StoredInput() || f.Policy.InputLimit <= c.config.LargestInput {
		return nil
	}
	return []string{fmt.Sprintf("%s is %s, but a node's buffer takes inputs of up to %s: requests with larger ones get BufferTooSmall; lower the annotation, or raise --buffer-limit of `headstart up`",
		policy.KeyInputLimit, quantity.Format(f.Policy.InputLimit), quantity.Format(c.config.LargestInput))}
}

// Delete implements admin.Backend.
func (c *Local) Delete(function string) error {
	if err := c.Platform.Delete(function); err != nil {
		return err
	}
	c.tellNodes()
	return nil
}

// RunJob implements admin.Backend.
func (c *Local) RunJob(ctx context.Context, manifest io.Reader) (admin.JobOutcome, error) {
	job, err := knative.ParseJob(manifest, c.stores, c.destinations)
	if err != nil {
		return admin.JobOutcome{}, manifestRefused(err)
	}
	o, err := c.Platform.RunJob(ctx, job)
	if err != nil {
		return admin.JobOutcome{}, err
	}
	return admin.JobOutcome{Job: job.Name, Node: o.Node, Instance: o.Instance, Reason: o.Reason, Message: o.Message, Field: o.Field, ExitCode: o.ExitCode, Log: o.Log, Trace: o.Trace}, nil
}

// Logs implements admin.Backend: the nodes' files are on this machine.
func (c *Local) Logs(ctx context.Context, o admin.LogOptions, to func(admin.LogLine) error) error {
	read := func(tail int, follow bool) error {
		return functionlog.Read(ctx, functionlog.Options{
			Dir: c.config.StateDir, Function: o.Function, Tail: tail, Follow: follow,
		},
			func(node, line string) error { return to(admin.LogLine{Node: node, Line: line}) })
	}
	deployed := slices.ContainsFunc(
		c.Platform.State().Functions, func(f platform.Function) bool { return f.Name == o.Function },
	)
	var err error
	if !deployed && o.Follow { // one that is unknown is not waited for
		err = read(0, false)
	}
	if err == nil {
		err = read(o.Tail, o.Follow)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !deployed:
		return &platform.Refusal{
			Status: http.StatusNotFound, Reason: "FunctionUnknown",
			Message: "no such function, and no log of it; `headstart status` lists functions",
		}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// Status implements admin.Backend.
func (c *Local) Status() admin.Status {
	state := c.Platform.State()
	s := c.status(state, func(f platform.Function) admin.Function {
		fn := admin.Function{Deleting: f.Deleting, Instances: []admin.Instance{}, Connections: f.Policy.Connections.Destinations}
		for _, in := range state.Instances {
			if in.Function == f.Name {
				fn.Instances = append(fn.Instances, admin.Instance{
					ID: in.ID, Node: in.Node, Phase: in.Phase, Address: in.Address,
				})
			}
		}
		return fn
	})
	connected := c.Nodes.Connected()
	for i := range s.Nodes {
		if address := connected[s.Nodes[i].Name].GetGatewayAddress(); address != "" {
			s.Nodes[i].Gateway = "http://" + address
		}
	}
	var err error
	if s.Parts, err = admin.ReadParts(c.config.RunDir); err != nil {
		c.log.Warn("the status lacks the platform's processes", "error", err)
	}
	return s
}
