// Package faults breaks parts of a cluster, one after the other, while requests come in at a
// constant rate, and counts the requests that fail, but for those that docs/architecture.md
// says may fail: which, how many and for how long. A Service that is not opted in gets the same
// load, to tell what the fault itself costs.
package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

// scenarioTimeout bounds one scenario, from the settled cluster before it to the mended one
// after it.
const scenarioTimeout = 6 * time.Minute

// scenario is one fault.
type scenario struct {
	name string
	// prepare, if there is one, has the cluster as the fault needs it, before the load.
	prepare func(context.Context, *rig) error
	// do breaks something and mends it, while requests come in. What it finds to be other
	// than promised it notes in the outcome.
	do func(context.Context, *rig, *Outcome) error
	// refusals are what cold requests may be answered with.
	refusals []refusal
	// core: it is tried also when there is no time for all.
	core bool
}

// scenarios are all faults, those that break the most last.
var scenarios = []scenario{
	{name: "nothing", do: nothing},
	{name: "annotations_refused", do: annotationsRefused, core: true},
	{name: "annotations_malformed", do: annotationsMalformed, core: true},
	{name: "annotations_conflicting", do: annotationsConflicting},
	{name: scaleToN, do: scaledByTwo, core: true},
	{name: "filter_absent", do: filterAbsent},
	{name: "controlplane_restarted", do: restarted("deployment", "headstart-controlplane", world.System)},
	{name: "controlplane_killed", do: leaderKilled},
	{name: "controlplanes_killed", do: controlPlanesKilled, core: true},
	{name: "daemons_restarted", do: restarted("daemonset", "headstart-node", world.System), core: true},
	{name: "gateways_restarted", do: restarted("deployment", gatewayName, meshNamespace)},
	{name: "istiod_restarted", do: restarted("deployment", "istiod", meshNamespace)},
	{name: "containerd_restarted", do: containerdRestarted},
	{name: "rbac_denied", do: rbacDenied, refusals: deniedRefusals},
	{name: "node_drained", prepare: clearVictim, do: nodeDrained},
	{name: "apiserver_away", do: apiServerAway, refusals: awayRefusals, core: true},
	{name: "node_lost", prepare: clearVictim, do: nodeLost, refusals: lostNodeRefusals},
}

// Names are the scenarios', in their order.
func Names() []string {
	names := make([]string, 0, len(scenarios))
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// Core are those that there is always time for: what most ever broke.
func Core() []string {
	var names []string
	for _, s := range scenarios {
		if s.core {
			names = append(names, s.name)
		}
	}
	return names
}

// Run breaks everything once. Headstart is installed in the world, and all is well before as
// after. The error is the cluster's or the scenario's own; what Headstart does wrong is in
// the result.
func Run(ctx context.Context, w *world.World, progress func(string)) (Result, error) {
	return RunOnly(ctx, w, progress, Names()...)
}

// RunOnly is Run for some of the scenarios.
func RunOnly(ctx context.Context, w *world.World, progress func(string), names ...string) (_ Result, err error) {
	r, err := newRig(ctx, w, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.close(context.WithoutCancel(ctx))) }()
	var result Result
	for _, name := range names {
		s, err := find(name)
		if err != nil {
			return result, err
		}
		outcome, err := r.play(ctx, s)
		if err != nil {
			return result, fmt.Errorf("%s: %w", s.name, err)
		}
		result.Outcomes = append(result.Outcomes, outcome)
		progress(outcome.String())
	}
	return result, nil
}

func find(name string) (scenario, error) {
	for _, s := range scenarios {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("no fault is called %q", name)
}

// play is one scenario under load.
func (r *rig) play(ctx context.Context, s scenario) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	if s.prepare != nil {
		if err := s.prepare(ctx, r); err != nil {
			return Outcome{}, fmt.Errorf("before it: %w", err)
		}
	}
	if err := r.settle(ctx); err != nil {
		return Outcome{}, fmt.Errorf("before it: %w", err)
	}
	r.progress("fault: " + s.name)
	o := &Outcome{Name: s.name, Cold: newCold()}
	began := time.Now()
	end := r.start(ctx, s.refusals)
	err := s.do(ctx, r, o)
	if err == nil {
		// What comes right after counts too.
		err = wait(ctx, aftermath)
	}
	end(o)
	o.Took = time.Since(began)
	return *o, err
}

// wait lets a fault last.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
