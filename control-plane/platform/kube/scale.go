package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

const (
	// scaleTimeout bounds one change of a scale, all tries together. The API server answers
	// in milliseconds or is not there.
	scaleTimeout = 5 * time.Second
	// scaleTries is how often a change is tried that other writers come before.
	scaleTries = 5
	// orphanPause is the time between two tries without a valid token.
	orphanPause = 250 * time.Millisecond
	// seenTimeout is how long the watch may take to tell what we have done ourselves.
	seenTimeout = 5 * time.Second
)

// attempt is one scale-up, which all requests share that wait for it.
type attempt struct {
	before  string // the workload's resource version then
	seen    bool   // the watch has told of it before the API server's answer was here
	done    bool
	ended   time.Time
	refused *platform.Refusal // nil: it went well, or is under way
}

// errOther: somebody else has scaled the workload.
var errOther = errors.New("another client has scaled the workload")

// workloadChanged looks at the namespace when the workload is another, and at its own
// functions only when its scale or its pods' admission has changed; mu is held.
func (p *Platform) workloadChanged(before, now *object.Workload) {
	if !p.open {
		return
	}
	w := p.workloads[keyOf(either(before, now))]
	if w != nil && before != nil && before.Replicas > 0 && (now == nil || now.Replicas == 0) {
		p.doom(w) // somebody may scale it up again before its controller has told the pods
	}
	if before == nil || now == nil || !sameTemplate(before, now) {
		if w != nil && now != nil {
			p.settle(w, now)
		}
		p.doubt(either(before, now).Namespace)
		return
	}
	if w == nil || before.Replicas == now.Replicas && before.Refused == now.Refused && w.up == nil && w.down == nil {
		return
	}
	p.settle(w, now)
	p.refreshAll(w)
}

func sameTemplate(a, b *object.Workload) bool {
	return a.UID == b.UID && reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.Template, b.Template)
}

func either(before, now *object.Workload) *object.Workload {
	if now != nil {
		return now
	}
	return before
}

// settle ends the wait for the watch to tell what we have done; the caller holds mu.
func (p *Platform) settle(w *workload, now *object.Workload) {
	if w.up != nil && now.ResourceVersion != w.up.before {
		w.up.seen = w.up.seen || now.Replicas > 0
		if w.up.done {
			w.up = nil
		}
	}
	if w.down != nil && w.down.done && now.Replicas == 0 {
		w.down = nil
	}
}

// scalerChanged looks at the namespace of an autoscaler; mu is held.
func (p *Platform) scalerChanged(before, now *object.Scaler) {
	if before != nil && now != nil && before.TargetKind == now.TargetKind && before.TargetName == now.TargetName && before.Least == now.Least {
		return // its status changes all the time
	}
	again[*object.Scaler](p)(before, now)
}

// current is the workload as the watch has told it last; the caller holds mu.
func (p *Platform) current(w *workload) *object.Workload {
	all := p.mirrors.deployments
	if w.kind == object.StatefulSet {
		all = p.mirrors.statefulSets
	}
	if now := all.Get(w.namespace, w.name); now != nil {
		return now
	}
	return &object.Workload{}
}

// desired is the scale that counts, and the resource version with which it does: what we
// have written ourselves is newer than what the watch has told. The caller holds mu.
func (p *Platform) desired(w *workload) (replicas int32, version string) {
	if w.down != nil && w.down.done {
		return 0, w.down.version
	}
	now := p.current(w)
	return now.Replicas, now.ResourceVersion
}

// ensureScale sees to it that a pod will come. joined remembers which scale-up the request
// waits for, whose failure is then its own. The caller holds mu.
func (p *Platform) ensureScale(f *function, joined **attempt) error {
	if *joined != nil && (*joined).done && (*joined).refused != nil {
		return (*joined).refused
	}
	w := f.workload
	if w == nil || !w.wakes || w.down != nil && !w.down.done {
		return nil // it is not ours to scale, or is being scaled just now
	}
	replicas, version := p.desired(w)
	// Pods on lost nodes count as replicas, and are replaced after minutes only. A
	// StatefulSet makes no other as long as one may still run.
	want := int32(1)
	switch {
	case replicas == 0:
		want = p.comesBackWith(w)
	case w.kind == object.Deployment && w.scaler == "" && len(f.instances) == 0 && len(f.pending) == 0:
		want = int32(f.lost) + 1
	}
	if replicas >= want {
		return nil
	}
	if up := w.up; up != nil && (!up.done || up.refused == nil && up.before == version && time.Since(up.ended) < seenTimeout) {
		*joined = up
		return nil
	}
	w.up = &attempt{before: version}
	*joined = w.up
	raised := want // beside lost pods, which is more than the workload is to have
	if replicas == 0 {
		raised = 0
	}
	p.scaleUp(w, w.up, replicas, want, p.keeping(w, raised))
	return nil
}

// scaleUp begins to scale. kept is what the ConfigMap lacks; the caller holds mu.
func (p *Platform) scaleUp(w *workload, a *attempt, from, want int32, kept map[types.UID]any) {
	if p.life.Err() != nil {
		return
	}
	p.background.Go(func() {
		keep := func() { // requests are worth more than a number
			if err := p.keep(kept); err != nil {
				p.log.Warn("a workload may come back with other replicas than it had", "kind", w.kind, "namespace", w.namespace, "name", w.name, "error", err)
			}
		}
		if from > 0 {
			keep()
		}
		_, err := p.setScale(w.workloadKey, scaleOf(w.workloadKey, a.before, want), func(replicas int32) bool { return replicas == from })
		if errors.Is(err, errOther) {
			err = nil // then it is up, or will be looked at anew
		}
		if from == 0 { // which no request waits for
			defer keep()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		a.done, a.ended = true, time.Now()
		if err != nil {
			a.refused = refusalOf(w.workloadKey, err)
			p.log.Warn("a workload could not be scaled up", "kind", w.kind, "namespace", w.namespace, "name", w.name, "error", err)
		} else {
			p.log.Info("scaled up", "kind", w.kind, "namespace", w.namespace, "name", w.name, "replicas", want)
		}
		// Nothing more may come to tell of it; and one that failed is waited for by those only
		// that have joined it.
		if w.up == a && (a.seen || a.refused != nil) {
			w.up = nil
		}
		for _, f := range w.functions {
			f.wake()
		}
	})
}

func scaleOf(k workloadKey, version string, replicas int32) *autoscalingv1.Scale {
	s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	s.Namespace, s.Name, s.ResourceVersion = k.namespace, k.name, version
	return s
}

// setScale writes a scale, which names the version that it is a change of. If there is a
// newer one, it is written again as long as ok says so of the replicas; else the error is
// errOther. It returns the version that it wrote.
func (p *Platform) setScale(k workloadKey, s *autoscalingv1.Scale, ok func(replicas int32) bool) (version string, err error) {
	ctx, cancel := context.WithTimeout(p.life, scaleTimeout)
	defer cancel()
	for tries := 0; tries < scaleTries; tries++ {
		var written *autoscalingv1.Scale
		if written, err = p.scales(k).UpdateScale(ctx, k.name, s, metav1.UpdateOptions{}); err == nil {
			return written.ResourceVersion, nil
		}
		if apierrors.IsUnauthorized(err) {
			// The pod of this control plane has been deleted, and its token with it. Whoever waits asks
			// another one, as soon as this process is killed.
			select {
			case <-time.After(orphanPause):
				tries--
				continue
			case <-ctx.Done():
				return "", err
			}
		}
		if !apierrors.IsConflict(err) {
			return "", err
		}
		now, err := p.scales(k).GetScale(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if !ok(now.Spec.Replicas) {
			return "", errOther
		}
		s.ResourceVersion = now.ResourceVersion
	}
	return "", err
}

// scales is the part of a client that scales one kind.
type scales interface {
	GetScale(ctx context.Context, name string, o metav1.GetOptions) (*autoscalingv1.Scale, error)
	UpdateScale(ctx context.Context, name string, s *autoscalingv1.Scale, o metav1.UpdateOptions) (*autoscalingv1.Scale, error)
}

func (p *Platform) scales(k workloadKey) scales {
	if k.kind == object.StatefulSet {
		return p.clients.Kubernetes.AppsV1().StatefulSets(k.namespace)
	}
	return p.clients.Kubernetes.AppsV1().Deployments(k.namespace)
}

// refusalOf says why a workload could not be scaled.
func refusalOf(k workloadKey, err error) *platform.Refusal {
	switch {
	case apierrors.IsForbidden(err):
		return refuse(http.StatusServiceUnavailable, reasonScaleUpForbidden, fmt.Sprintf(
			"the control plane may not scale %s %s: %v; allow its service account the verbs get and update on %ss/scale of API group apps", k.kind, k.name, err, strings.ToLower(k.kind)))
	case apierrors.IsNotFound(err):
		return refuse(http.StatusServiceUnavailable, reasonNoInstance, fmt.Sprintf("%s %s is gone", k.kind, k.name))
	case apierrors.IsConflict(err):
		return refuse(http.StatusServiceUnavailable, reasonPlatformUnavailable, fmt.Sprintf("%s %s is being changed by others all the time; send the request again", k.kind, k.name))
	}
	return refuse(http.StatusServiceUnavailable, reasonPlatformUnavailable, fmt.Sprintf("the API server did not scale %s %s: %v", k.kind, k.name, err))
}
