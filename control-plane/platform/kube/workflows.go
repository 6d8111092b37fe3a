package kube

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

const (
	// verdictsMost is how many conditions wait for the API server; those beyond follow with the next change, or the next
	// control plane in charge.
	verdictsMost = 64
	// conditionMost is the longest message of a condition, in bytes (metav1.Condition).
	conditionMost = 32 << 10
)

// workflowChanged looks at a namespace's functions, and has the object say whether it can be run; mu is held.
func (p *Platform) workflowChanged(before, now *object.Workflow) {
	again[*object.Workflow](p)(before, now)
	if now != nil {
		p.judge(now)
	}
}

// judge has a workflow's condition say what it is to say; the caller holds mu.
func (p *Platform) judge(w *object.Workflow) {
	ready := metav1.ConditionTrue
	if w.Wrong != "" {
		ready = metav1.ConditionFalse
	}
	if w.SaidOf == w.Generation && w.Ready == string(ready) && w.Said == message(w) || !p.inCharge() {
		return
	}
	select {
	case p.verdicts <- w:
	default:
	}
}

func message(w *object.Workflow) string {
	return strings.ToValidUTF8(w.Wrong[:min(len(w.Wrong), conditionMost)], "")
}

// tellVerdicts writes conditions until ctx ends.
func (p *Platform) tellVerdicts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-p.verdicts:
			err := p.tellVerdict(ctx, w)
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // what it is now is on its way here
				continue
			}
			if err != nil && ctx.Err() == nil {
				p.log.Warn("a workflow does not say whether it can be run", "workflow", w.Namespace+"/"+w.Name, "error", err)
			}
		}
	}
}

func (p *Platform) tellVerdict(ctx context.Context, w *object.Workflow) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	c := metav1.Condition{Type: object.ConditionReady, Status: metav1.ConditionTrue, Reason: "Compiled", Message: message(w),
		ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(time.Now())}
	if w.Wrong != "" {
		c.Status, c.Reason = metav1.ConditionFalse, "WorkflowRefused"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": w.ResourceVersion},
		"status": map[string]any{"observedGeneration": w.Generation, "conditions": []metav1.Condition{c}}})
	if err != nil {
		return err
	}
	_, err = p.clients.Dynamic.Resource(workflows).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// judgeAll does so for all workflows that do not say it yet; the caller holds mu.
func (p *Platform) judgeAll() {
	p.mirrors.workflows.Namespaces(func(namespace string) {
		for _, w := range p.mirrors.workflows.Of(namespace) {
			p.judge(w)
		}
	})
}
