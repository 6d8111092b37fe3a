package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// quietFor is the load without a fault.
	quietFor = 10 * time.Second
	// apiServerAwayFor is a minute, as an upgrade of a control plane with one machine takes.
	apiServerAwayFor = time.Minute
	// deniedFor is enough for some cold requests.
	deniedFor = 30 * time.Second
	// filterlessFor is so, too.
	filterlessFor = 20 * time.Second
	// betweenNodes lets a cold request meet each restart.
	betweenNodes = 5 * time.Second
	// recoveryMost bounds how long cold requests may still be refused when the fault is over.
	recoveryMost = 15 * time.Second
	// leaseMost bounds how long nobody is in charge: the Lease has to run out, which takes 15 s,
	// and the next one tries for it every 2 s.
	leaseMost      = 30 * time.Second
	rolloutTimeout = 3 * time.Minute
	drainTimeout   = time.Minute
)

func nothing(ctx context.Context, _ *rig, _ *Outcome) error { return wait(ctx, quietFor) }

// restarted replaces all pods of a component as an upgrade does.
func restarted(kind, name, namespace string) func(context.Context, *rig, *Outcome) error {
	return func(ctx context.Context, r *rig, _ *Outcome) error {
		if err := r.kubectl(ctx, "-n", namespace, "rollout", "restart", kind+"/"+name); err != nil {
			return err
		}
		return r.kubectl(ctx, "-n", namespace, "rollout", "status", kind+"/"+name, "--timeout", rolloutTimeout.String())
	}
}

// leaderKilled ends the control plane that is in charge without a word. The other one goes on at
// once, and is in charge when the Lease has run out.
func leaderKilled(ctx context.Context, r *rig, o *Outcome) error {
	before, err := r.inCharge(ctx)
	if err != nil {
		return err
	}
	if err := r.kill(ctx, "pod", before); err != nil {
		return err
	}
	err = testbed.Poll(ctx, leaseMost, func(ctx context.Context) error {
		now, err := r.inCharge(ctx)
		if err == nil && now == before {
			err = errors.New("it is still " + before)
		}
		return err
	})
	if err != nil {
		o.broken("no other control plane is in charge: %v", err)
	}
	return r.controlPlanesAreBack(ctx)
}

// controlPlanesKilled ends all of them: cold requests wait for the next ones.
func controlPlanesKilled(ctx context.Context, r *rig, _ *Outcome) error {
	return errors.Join(r.kill(ctx, "pod", "-l", "app.kubernetes.io/name=headstart-controlplane"), r.controlPlanesAreBack(ctx))
}

func (r *rig) kill(ctx context.Context, what ...string) error {
	return r.kubectl(ctx, append([]string{"-n", world.System, "delete", "--force", "--grace-period=0"}, what...)...)
}

func (r *rig) controlPlanesAreBack(ctx context.Context) error {
	return r.kubectl(ctx, "-n", world.System, "rollout", "status", "deployment/headstart-controlplane", "--timeout", rolloutTimeout.String())
}

// inCharge is the name of the control plane that is, among several.
func (r *rig) inCharge(ctx context.Context) (string, error) {
	client, err := r.Admin()
	if err != nil {
		return "", err
	}
	defer client.Close()
	s, err := client.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range s.ControlPlanes {
		if c.InCharge {
			return c.Name, nil
		}
	}
	return "", fmt.Errorf("none of %d control planes is in charge", len(s.ControlPlanes))
}

// containerdRestarted ends each node's containerd once.
func containerdRestarted(ctx context.Context, r *rig, _ *Outcome) error {
	for _, n := range r.Nodes() {
		if err := r.RestartContainerd(ctx, n.Name); err != nil {
			return err
		}
		if err := wait(ctx, betweenNodes); err != nil {
			return err
		}
	}
	return nil
}

var deniedRefusals = []refusal{{title: "ScaleUpForbidden", within: refusedWithin}}

// rbacDenied takes the control plane's rights. What it has seen it goes on with.
func rbacDenied(ctx context.Context, r *rig, o *Outcome) error {
	back, err := r.takeAway(ctx, "ClusterRoleBinding", "headstart-controlplane", "")
	if err != nil {
		return err
	}
	err = testbed.Poll(ctx, recoveryMost, r.mayNotScale) // the API server has its own cache
	if err == nil {
		err = errors.Join(r.refused(ctx, o, deniedRefusals), wait(ctx, deniedFor))
	}
	if err := errors.Join(err, back(ctx)); err != nil {
		return err
	}
	r.again(ctx, asleep, o, recoveryMost)
	return nil
}

func (r *rig) mayNotScale(ctx context.Context) error {
	if r.kubectl(ctx, "auth", "can-i", "update", "deployments.apps", "--subresource=scale", "-n", world.Functions,
		"--as=system:serviceaccount:"+world.System+":headstart-controlplane") == nil {
		return errors.New("the control plane may still scale")
	}
	return ctx.Err()
}

// refused sends a request to a function that cannot be scaled up now.
func (r *rig) refused(ctx context.Context, o *Outcome, refusals []refusal) error {
	a := r.ask(ctx, asleep)
	if a.ok() {
		o.broken("a function was scaled up although nobody could do so")
	}
	o.Cold.note(asleep, a, true, refusals)
	return ctx.Err()
}

// filterAbsent has gateways without our filter: inputs are the functions' own to fetch, and
// cold requests still find the daemon.
func filterAbsent(ctx context.Context, r *rig, _ *Outcome) error {
	back, err := r.takeAway(ctx, "TrafficExtension", "headstart-prefetch", meshNamespace)
	if err != nil {
		return err
	}
	return errors.Join(wait(ctx, filterlessFor), back(ctx))
}

// nodeDrained evicts all that can be from a node, and then lets it take pods again.
func nodeDrained(ctx context.Context, r *rig, _ *Outcome) error {
	err := r.kubectl(ctx, "drain", r.victim, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", drainTimeout.String())
	return errors.Join(err, wait(ctx, betweenNodes), r.kubectl(context.WithoutCancel(ctx), "uncordon", r.victim))
}

// awayRefusals are what a request to a function without an instance may be told while the
// API server is away. Those whose pod was just being started wait for it: the kubelet asks the
// API server for the pod's token, and tells nobody else its address.
var awayRefusals = []refusal{{title: "PlatformUnavailable", within: refusedWithin}, {title: "ActivationTimeout", within: refusedWithin},
	{title: "ReadyTimeout", most: startingMost, within: readyTimeout + readySlack},
	// When it is back, the cluster takes all nodes for lost until it has heard of them.
	{title: "Unschedulable", within: refusedWithin}}

// apiServerAway has a cluster that nothing can be changed in. An instance that has begun to
// start gets the request that waits for it, if it has an address; one that has only a node may
// be too early. A function that is at zero stays there, which its callers are told at once,
// until the API server is back.
func apiServerAway(ctx context.Context, r *rig, o *Outcome) (err error) {
	running := r.askLater(ctx, slow)
	if _, err := r.instanceOf(ctx, slow, true); err != nil {
		return errors.Join(err, fmt.Errorf("the request: %v", <-running))
	}
	early := r.askLater(ctx, bound)
	if _, err := r.instanceOf(ctx, bound, false); err != nil {
		return errors.Join(err, fmt.Errorf("the request: %v", <-early))
	}
	if err := r.StopAPIServer(ctx); err != nil {
		return err
	}
	wait := errors.Join(r.refused(ctx, o, awayRefusals), wait(ctx, apiServerAwayFor))
	if err := errors.Join(wait, r.StartAPIServer(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	if a := <-running; !a.ok() {
		o.broken("an activation that was under way did not end well: %v", a)
	}
	o.Cold.note(bound, <-early, true, awayRefusals)
	if err := r.placesPods(ctx); err != nil {
		return err
	}
	r.again(ctx, asleep, o, recoveryMost)
	return nil
}

// placesPods waits until the cluster starts a pod. After its API server was away it takes
// all nodes for lost until it has heard of them, which may take it a minute.
func (r *rig) placesPods(ctx context.Context) error {
	if err := r.kubectl(ctx, "-n", world.Functions, "scale", "deployment", plain, "--replicas=1"); err != nil {
		return err
	}
	return errors.Join(
		r.kubectl(ctx, "-n", world.Functions, "rollout", "status", "deployment/"+plain, "--timeout", rolloutTimeout.String()),
		r.kubectl(ctx, "-n", world.Functions, "scale", "deployment", plain, "--replicas=0"))
}

// askLater sends a request and returns where its answer comes.
func (r *rig) askLater(ctx context.Context, function string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- r.ask(ctx, function) }() // it has a bound of its own
	return c
}
