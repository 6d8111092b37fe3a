package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// placementTimeout bounds an activation: a little less than the 15 s after which the
	// node gives up, and knows less of the reason.
	placementTimeout = 14 * time.Second
	// watchLag is how far the watches of two kinds may be apart: a Service that was applied
	// together with its Deployment may be seen so much earlier.
	watchLag = 2 * time.Second
	// bindTick is how often a waiting activation looks for what only time changes.
	bindTick = time.Second
	// fieldNodeSelector is the field by which a function's owner chooses nodes.
	fieldNodeSelector = "spec.template.spec.nodeSelector"
)

// Activate implements platform.Platform.
func (p *Platform) Activate(ctx context.Context, r platform.Request) (platform.Instance, error) {
	waiting, cancel := context.WithTimeout(ctx, placementTimeout)
	defer cancel()
	select {
	case <-p.recovered:
	case <-waiting.Done():
		return platform.Instance{}, p.late(ctx, r)
	}
	tick := time.NewTicker(bindTick)
	defer tick.Stop()
	var joined *attempt // the scale-up that this request waits for
	for {
		p.mu.Lock()
		in, moved, err := p.bind(r, &joined)
		p.mu.Unlock()
		if moved == nil || err != nil {
			return in, err
		}
		select {
		case <-moved:
		case <-tick.C:
		case <-waiting.Done():
			return platform.Instance{}, p.late(ctx, r)
		case <-p.life.Done():
			return platform.Instance{}, refuse(http.StatusServiceUnavailable, reasonPlatformUnavailable, "the control plane is being stopped; send the request again")
		}
	}
}

// refuse is a refusal without a field.
func refuse(status int, reason, message string) *platform.Refusal {
	return &platform.Refusal{Status: status, Reason: reason, Message: message}
}

// bind returns the instance that the request is bound to, or why there is none, or else a
// channel: when that closes, it is to be tried again. The caller holds mu.
func (p *Platform) bind(r platform.Request, joined **attempt) (platform.Instance, <-chan struct{}, error) {
	f := p.functions[r.Function]
	if f == nil {
		return platform.Instance{}, nil, unknownFunction()
	}
	if !p.maySend(r.Node, f) {
		return platform.Instance{}, f.moved, nil // what has just come to the node may be known in a moment
	}
	if err := f.RefusesCaller(r.Caller); err != nil {
		return platform.Instance{}, nil, err
	}
	if f.Function.Workflow != nil {
		return platform.Instance{}, nil, platform.OldDaemon(r.Node)
	}
	if f.Withdrawn {
		return p.lastResort(f, r)
	}
	p.activity.Touch(f.Name)
	if f.Relay != nil {
		return p.relayed(f), nil, nil
	}
	p.takeBack(f.workload)
	if in := p.pick(f, r.Node); in != nil {
		return in.Instance, nil, nil
	}
	if err := p.hopeless(f); err != nil {
		return platform.Instance{}, nil, err
	}
	if err := p.ensureScale(f, joined); err != nil {
		return platform.Instance{}, nil, err
	}
	return platform.Instance{}, f.moved, nil
}

// lastResort is where a withdrawn function's request goes; the caller holds mu.
func (p *Platform) lastResort(f *function, r platform.Request) (platform.Instance, <-chan struct{}, error) {
	if f.Relay != nil {
		return p.relayed(f), nil, nil
	}
	if in := p.pick(f, r.Node); in != nil && in.Phase == platform.Ready {
		return in.Instance, nil, nil
	}
	return platform.Instance{}, nil, unknownFunction()
}

func unknownFunction() *platform.Refusal {
	return refuse(
		http.StatusNotFound, reasonFunctionUnknown,
		"no Service with headstart.dev/ annotations has this name, or it is refused: see the events of the Service",
	)
}

// relayed is where a request for a function of Knative's goes; the caller holds mu.
func (p *Platform) relayed(f *function) platform.Instance {
	in := platform.Instance{Function: f.Name, Phase: platform.Starting, Relay: &platform.Relay{Address: f.Relay.Address, Headers: maps.Clone(f.Relay.Headers)}}
	// Not the endpoints: the activator stays in the way of few pods, too.
	if slices.ContainsFunc(p.revisionPods(f), func(pod *object.Pod) bool { return pod.Ready && !pod.Terminating() }) {
		in.Phase = platform.Ready
	}
	return in
}

// What counts for an instance, in the order of its weight. One that is ready is used also
// if its node is not, as long as the cluster itself does so; nothing new is bound to such a
// node.
const (
	scoreJoined = 1 << iota // its node's daemon is connected
	scoreNear               // it is on the requesting node
	scoreSound              // its node is ready
	scoreReady
)

// pick chooses an instance; equals take turns. The caller holds mu.
func (p *Platform) pick(f *function, node string) *instance {
	var best []*instance
	most := 0
	for _, in := range f.instances {
		ready := in.Phase == platform.Ready
		if in.Phase == platform.Stopping || !ready && (!in.sound || in.failure != nil) {
			continue
		}
		score := 0
		for weight, counts := range map[int]bool{scoreReady: ready, scoreSound: in.sound, scoreNear: in.Node == node, scoreJoined: p.joined[in.Node]} {
			if counts {
				score += weight
			}
		}
		if score > most {
			best, most = nil, score
		}
		if score == most {
			best = append(best, in)
		}
	}
	if len(best) == 0 {
		return nil
	}
	f.turn++
	return best[f.turn%len(best)]
}

// hopeless says why waiting is of no use; the caller holds mu.
func (p *Platform) hopeless(f *function) error {
	if len(f.pending) > 0 {
		if slices.ContainsFunc(f.pending, func(pod *object.Pod) bool { return pod.Unschedulable == "" }) {
			return nil
		}
		return p.unschedulable(f, f.pending[0].Unschedulable)
	}
	for _, in := range f.instances {
		if in.failure != nil && in.Phase == platform.Starting {
			return refuse(http.StatusBadGateway, in.failure.Reason, in.failure.Message)
		}
	}
	w := f.workload
	switch {
	case w == nil && f.lost > 0:
		return refuse(http.StatusServiceUnavailable, reasonNodeUnavailable, "all pods of the Service are on nodes that do not answer")
	case w == nil && time.Since(f.since) < watchLag:
		return nil
	case w == nil:
		return refuse(http.StatusServiceUnavailable, reasonNoInstance, "the Service has no pod, and no Deployment or StatefulSet of its namespace, or several, whose pods it selects")
	case f.Scaler != "" && !w.wakes && f.lost == 0 && len(f.instances) == 0:
		return refuse(http.StatusServiceUnavailable, reasonScaledByAnother, fmt.Sprintf(
			"there is no pod, and Headstart makes none: %s scales %s %s; add the annotation %s to the Service, and let the autoscaler's minimum be 1, or 0 with KEDA", f.Scaler, w.kind, w.name, policy.KeyScaleToZero))
	}
	current := p.current(w)
	switch replicas, _ := p.desired(w); {
	case current.Refused != "" && replicas > 0:
		return refuse(http.StatusServiceUnavailable, reasonPodRefused, "the cluster refuses the pod: "+current.Refused)
	case !w.wakes && replicas == 0:
		return &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: reasonNoInstance, Field: policy.KeyScaleToZero, Message: fmt.Sprintf(
			"%s %s has no replicas, and its Services have no annotation %s, without which Headstart does not scale it; add the annotation, or scale it up", w.kind, w.name, policy.KeyScaleToZero)}
	}
	return nil
}

// unschedulable repeats the scheduler's message; the caller holds mu.
func (p *Platform) unschedulable(f *function, message string) error {
	r := refuse(http.StatusServiceUnavailable, reasonUnschedulable, "no node takes the pod: "+message)
	if f.Workload == nil || len(f.Workload.Template.NodeSelector) == 0 || !strings.Contains(message, "affinity/selector") {
		return r
	}
	var wants []string
	for _, key := range slices.Sorted(maps.Keys(f.Workload.Template.NodeSelector)) {
		wants = append(wants, key+"="+f.Workload.Template.NodeSelector[key])
	}
	r.Field = fieldNodeSelector
	r.Message += " (it asks for " + strings.Join(wants, ", ") + ")"
	return r
}

// late says what an activation waited for in vain. It is the caller's own error when the
// caller has gone.
func (p *Platform) late(ctx context.Context, r platform.Request) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	if err := p.Healthy(); err != nil {
		return refuse(http.StatusServiceUnavailable, reasonPlatformUnavailable, err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	what := "the cluster made no pod"
	if f := p.functions[r.Function]; f != nil {
		switch {
		case !p.maySend(r.Node, f):
			return notFrom(r)
		case len(f.pending) > 0:
			what = "the scheduler gave pod " + f.pending[0].Name + " no node"
		case f.lost > 0:
			what = "the pods are on nodes that do not answer, and the cluster made no other"
		case len(f.instances) > 0:
			what = "the pods are being stopped, or their nodes are not ready, and the cluster made no other"
		}
	}
	return refuse(http.StatusGatewayTimeout, reasonActivationTimeout, fmt.Sprintf("%s within %s", what, placementTimeout))
}

// Healthy is nil while the control plane sees all that it needs of the cluster. Its error
// names what is missing, and what to allow.
func (p *Platform) Healthy() error {
	var problems []error
	for _, s := range p.Kinds() {
		if !s.Optional && !s.OK() {
			message := s.Message
			if message == "" {
				message = s.Resource + " have not been read yet"
			}
			problems = append(problems, errors.New(message))
		}
	}
	return errors.Join(problems...)
}
