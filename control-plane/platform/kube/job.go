package kube

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

const (
	// reasonRefused is said of annotations that came past the admission policy.
	reasonRefused = "AnnotationsRefused"
)

// placed is a pod that has a node, and something of Headstart for itself alone.
type placed struct {
	node, namespace string
	mirror          bool // the node itself can have made it
	// job is its input, nil for none; volumes are its volumes, nil for none.
	job     *nodeapi.Job
	volumes *nodeapi.Volumes
	// connections are its connections, nil for none; refusal is why it has none of those that it asks for.
	connections *nodeapi.Connections
	refusal     refusal
}

// none: it has nothing for itself.
func (a placed) none() bool {
	return a.job == nil && a.volumes == nil && a.connections == nil && a.refusal == refusal{}
}

func (a placed) equal(b placed) bool {
	return a.node == b.node && a.refusal == b.refusal && proto.Equal(a.job, b.job) && proto.Equal(a.volumes, b.volumes) &&
		proto.Equal(a.connections, b.connections)
}

// noteOwn keeps up to date what pods have for themselves; mu is held. The node hears of it as soon as the pod is bound,
// when the kubelet does.
func (p *Platform) noteOwn(before, now *object.Pod) {
	pod := now
	if pod == nil {
		pod = before
	}
	id := podID(pod)
	if before != nil && podID(before) != id { // another pod of the name
		p.noteOwn(before, nil)
	}
	old, known := p.own[id]
	var next placed
	if now != nil && !now.Ended && now.Node != "" && now.RuntimeClass == object.RuntimeClass {
		next = p.ownOf(now)
	}
	if next.none() {
		delete(p.own, id)
		if known {
			p.changed()
		}
		return
	}
	if known && old.equal(next) {
		return
	}
	if next.refusal != (refusal{}) && next.refusal != old.refusal {
		p.tellRefusal(pod, next.refusal)
	}
	p.own[id] = next
	p.changed()
}

// ownOf is what the pod's node is told. Annotations that are wrong, or name a store that
// is not granted to the namespace, keep its containers from starting.
func (p *Platform) ownOf(pod *object.Pod) placed {
	own := placed{node: pod.Node, namespace: pod.Namespace, mirror: pod.Mirror}
	own.connections, own.refusal = p.connectionsOf(pod)
	isJob, hasVolumes := pod.Annotations[policy.KeyInput] != "", pod.Annotations[policy.KeyVolumes] != ""
	if !isJob && !hasVolumes {
		return own
	}
	id, name := podID(pod), pod.Namespace+"/"+pod.Name
	asked, err := policy.ParseJob(withoutConnections(pod.Annotations), p.reader.Stores.For(pod.Namespace), nil)
	var refused *nodeapi.Refused
	if err != nil {
		refused = &nodeapi.Refused{Status: http.StatusUnprocessableEntity, Reason: reasonRefused, Message: err.Error()}
		if all, ok := errors.AsType[field.Errors](err); ok {
			refused.Field = all[0].Field
		}
	}
	if hasVolumes {
		if own.volumes = asked.Volumes.Message(id, name); refused != nil {
			own.volumes = &nodeapi.Volumes{Id: id, Name: name, Refused: refused}
		}
	}
	if !isJob {
		return own
	}
	own.job = &nodeapi.Job{Id: id, Name: name, Refused: refused}
	if refused == nil {
		own.job.Store, own.job.Input, own.job.InputLimit = asked.Store, asked.Input, asked.InputLimit
		own.job.ReadyTimeout, own.job.BySocket = durationpb.New(asked.ReadyTimeout), asked.ReadBySocket
	}
	return own
}

// tellOwn adds what the pods of one node have for themselves, by id; the caller holds mu.
func (p *Platform) tellOwn(node string, m *nodeapi.Instances) {
	for _, id := range slices.Sorted(maps.Keys(p.own)) {
		own := p.own[id]
		if own.node != node {
			continue
		}
		if own.job != nil {
			m.Jobs = append(m.Jobs, own.job)
		}
		if own.volumes != nil {
			m.Volumes = append(m.Volumes, own.volumes)
		}
		if own.connections != nil {
			m.Connections = append(m.Connections, own.connections)
		}
	}
}
