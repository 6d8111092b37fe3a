package kube

import (
	"cmp"
	"errors"
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
	// runtimeClass is that of the pods whose containers our shim starts. In others nothing
	// could appear.
	runtimeClass = "headstart"
	// reasonRefused is said of annotations that came past the admission policy.
	reasonRefused = "AnnotationsRefused"
)

// placedJob is a pod with an input of its own and a node.
type placedJob struct {
	node    string
	message *nodeapi.Job
	mirror  bool // the node itself can have made it
}

// noteJob keeps the jobs up to date; mu is held. The node hears of one as soon as it is bound,
// when the kubelet does.
func (p *Platform) noteJob(before, now *object.Pod) {
	pod := now
	if pod == nil {
		pod = before
	}
	id := podID(pod)
	if before != nil && podID(before) != id { // another pod of the name
		p.noteJob(before, nil)
	}
	old, known := p.jobs[id]
	if now == nil || now.Ended || now.Node == "" || now.RuntimeClass != runtimeClass || now.Annotations[policy.KeyInput] == "" {
		delete(p.jobs, id)
		if known {
			p.changed()
		}
		return
	}
	next := placedJob{now.Node, p.jobMessage(now), now.Mirror}
	if known && old.node == next.node && proto.Equal(old.message, next.message) {
		return
	}
	p.jobs[id] = next
	p.changed()
}

// jobMessage is what the pod's node is told. Annotations that are wrong, or name a store that
// is not granted to the namespace, keep its containers from starting.
func (p *Platform) jobMessage(pod *object.Pod) *nodeapi.Job {
	m := &nodeapi.Job{Id: podID(pod), Name: pod.Namespace + "/" + pod.Name}
	asked, err := policy.ParseJob(pod.Annotations, p.reader.Stores.For(pod.Namespace))
	if err != nil {
		m.Refused = &nodeapi.Refused{Status: http.StatusUnprocessableEntity, Reason: reasonRefused, Message: err.Error()}
		if all, ok := errors.AsType[field.Errors](err); ok {
			m.Refused.Field = all[0].Field
		}
		return m
	}
	m.Store, m.Input, m.InputLimit = asked.Store, asked.Input, asked.InputLimit
	m.ReadyTimeout, m.BySocket = durationpb.New(asked.ReadyTimeout), asked.ReadBySocket
	return m
}

// jobsOf are those of one node, by id; the caller holds mu.
func (p *Platform) jobsOf(node string) []*nodeapi.Job {
	var all []*nodeapi.Job
	for _, j := range p.jobs {
		if j.node == node {
			all = append(all, j.message)
		}
	}
	slices.SortFunc(all, func(a, b *nodeapi.Job) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return all
}
