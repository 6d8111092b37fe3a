package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/mirror"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// ReplicasName is the ConfigMap of the control plane's namespace that keeps how many replicas workloads had. The chart
// makes it. A workload with one replica is not in it.
const ReplicasName = "headstart-replicas"

// kept are the replicas that workloads come back with; the caller holds mu.
func (p *Platform) kept() *object.Replicas { return p.mirrors.replicas.Get(p.namespace, ReplicasName) }

// comesBackWith is how many replicas the workload is woken with; the caller holds mu.
func (p *Platform) comesBackWith(w *workload) int32 {
	if w.scaler != "" {
		return min(max(1, w.least), object.ReplicasMost) // the rest is for the autoscaler to say
	}
	return p.kept().Of(p.current(w).UID)
}

// Withdrawn are how many replicas functions are without because they are idle: those that they come back with. Of functions
// with one workload it is the first.
func (p *Platform) Withdrawn() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int{}
	for _, w := range p.workloads {
		if replicas, _ := p.desired(w); w.window == 0 || len(w.functions) == 0 || p.current(w).UID == "" {
			continue
		} else if replicas > 0 {
			all[first(w)] = 0
		} else {
			all[first(w)] = int(p.comesBackWith(w))
		}
	}
	return all
}

func first(w *workload) string {
	return slices.MinFunc(w.functions, func(a, b *function) int { return strings.Compare(a.Name, b.Name) }).Name
}

// keeping is what the ConfigMap lacks for the workload to come back with the replicas that it has; raised is as for
// object.Replicas. The caller holds mu.
func (p *Platform) keeping(w *workload, raised int32) map[types.UID]any {
	if w.scaler != "" {
		return nil
	}
	return p.kept().Keeping(p.current(w), raised, p.noWorkload)
}

// noWorkload tells whether no workload has the UID; the caller holds mu.
func (p *Platform) noWorkload(uid types.UID) bool {
	gone := true
	for _, all := range []*mirror.Mirror[*object.Workload]{p.mirrors.deployments, p.mirrors.statefulSets} {
		all.Namespaces(func(namespace string) {
			for _, w := range all.Of(namespace) {
				gone = gone && w.UID != uid
			}
		})
	}
	return gone
}

// keep writes what changes in the ConfigMap.
func (p *Platform) keep(data map[types.UID]any) error {
	if len(data) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("keeping its number of replicas: %w", err)
	}
	ctx, cancel := context.WithTimeout(p.life, scaleTimeout)
	defer cancel()
	_, err = p.clients.Kubernetes.CoreV1().ConfigMaps(p.namespace).Patch(ctx, ReplicasName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("keeping its number of replicas in ConfigMap %s/%s: %w", p.namespace, ReplicasName, err)
	}
	return nil
}

// keepFor has the ConfigMap say with how many replicas the workload comes back, while it is being withdrawn: the other
// control planes, too, know the number when the workload is at zero. It tells whether this one does. The caller holds mu.
func (p *Platform) keepFor(w *workload) (known bool) {
	data, d := p.keeping(w, 0), w.down
	if len(data) == 0 {
		return true
	}
	if d.keeping || time.Since(d.kept) < seenTimeout || p.life.Err() != nil {
		return false // it is being written, or was just now
	}
	d.keeping = true
	p.background.Go(func() {
		err := p.keep(data)
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.keeping, d.kept = false, time.Now(); err != nil && w.down == d {
			p.committed(w, d, "", err)
		}
	})
	return false
}
