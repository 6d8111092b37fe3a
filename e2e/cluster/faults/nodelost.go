package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

// lostFor is long enough for the cluster to notice the loss (its grace is 25 s) and for new
// instances to be there.
const lostFor = 45 * time.Second

// lostNodeRefusals are what a request is told whose instance is on a node that is gone but
// not given up yet. One whose only instance was ready there goes to it until then, as a
// request to an ordinary Service does, and has the gateway's own answer, or the daemon's that
// the program takes no connections.
var lostNodeRefusals = []refusal{
	{title: noProblem, within: refusedWithin}, {title: "FunctionFailed", within: refusedWithin}, {title: "NodeDaemonAway", within: refusedWithin},
	{title: "NodeUnavailable", within: refusedWithin}, {title: "PeerUnreachable", within: unreachableWithin}, {title: "PeerFailed", within: refusedWithin},
	{title: "PeerTimeout", within: refusedWithin}, {title: "ReadyTimeout", within: readyTimeout + readySlack},
}

// vital are the pods that must not be on the node that is lost: the fault is a function's
// node, not all that a small cluster has. One of the control planes may be there.
var vital = [][2]string{{meshNamespace, "app=" + gatewayName}, {meshNamespace, "app=istiod"}}

// eachItsConnection has requests to a Service not share connections. One on a connection
// that is open to the lost node hangs until the client gives up, with and without Headstart,
// and how many of those there are is chance.
const eachItsConnection = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: %[2]s, labels: {part: %[3]s}}
spec: {host: %[1]s.%[2]s.svc.cluster.local, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}
---
`

// nodeLost takes a node away, as by a power cut, just when a cold request was bound to it.
func nodeLost(ctx context.Context, r *rig, o *Outcome) (err error) {
	rules := fmt.Sprintf(eachItsConnection, hot, world.Functions, part) + fmt.Sprintf(eachItsConnection, ordinary, world.Functions, part)
	if err := r.Apply(ctx, rules); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.kubectl(context.WithoutCancel(ctx), "-n", world.Functions, "delete", "destinationrule", "-l", "part="+part))
	}()
	running, err := r.boundTo(ctx, r.victim)
	if err != nil {
		return err
	}
	if err := r.StopNode(ctx, r.victim); err != nil {
		return err
	}
	began := time.Now()
	defer func() { err = errors.Join(err, r.StartNode(context.WithoutCancel(ctx), r.victim)) }()
	select {
	case a := <-running:
		o.notice(a)
	case <-ctx.Done():
		return ctx.Err()
	}
	r.again(ctx, slow, o, lostFor)
	return wait(ctx, max(0, lostFor-time.Since(began)))
}

// notice says what became of the request that was bound to the lost node.
func (o *Outcome) notice(a answer) {
	switch {
	case a.ok():
	case a.problem.Title == "" || a.problem.Detail == "":
		o.broken("the request on the lost node ended without a problem that says why: %v", a)
	}
	if a.took > coldTimeout/2 {
		o.broken("the request on the lost node was answered only after %.1f s", a.took.Seconds())
	}
}

// boundTo sends a cold request and returns when its instance has that node.
func (r *rig) boundTo(ctx context.Context, node string) (running <-chan answer, err error) {
	for _, n := range r.Nodes() {
		if n.Name == node {
			continue
		}
		if err := r.kubectl(ctx, "cordon", n.Name); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.kubectl(context.WithoutCancel(ctx), "uncordon", n.Name)) }()
	}
	running = r.askLater(ctx, slow)
	pod, err := r.instanceOf(ctx, slow, false)
	if err == nil && pod.Spec.NodeName != node {
		err = fmt.Errorf("the instance was bound to %s, not to %s", pod.Spec.NodeName, node)
	}
	return running, err
}

// clearVictim chooses a node, and moves away what there is vital on it.
func clearVictim(ctx context.Context, r *rig) error {
	node, err := r.nodeWithoutGateway(ctx)
	if errors.Is(err, errGateways) {
		node, err = r.Nodes()[len(r.Nodes())-1].Name, nil
	}
	if err := errors.Join(err, r.kubectl(ctx, "cordon", node)); err != nil {
		return err
	}
	for _, v := range vital {
		err = errors.Join(err, r.kube.CoreV1().Pods(v[0]).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: v[1], FieldSelector: "spec.nodeName=" + node}))
	}
	r.victim = node
	return errors.Join(err, r.rolledOut(ctx), r.kubectl(context.WithoutCancel(ctx), "uncordon", node))
}
