package object

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReplicasMost is the most replicas that a workload comes back with from zero. It bounds what a stolen token of the
// control plane's can do at once; who had more has an autoscaler that brings the rest.
const ReplicasMost = 100

// Replicas are how many replicas workloads come back with from zero.
type Replicas struct {
	metav1.ObjectMeta
	of map[types.UID]kept
}

// kept is of one workload: how many replicas it had, and to how many it was raised because some were on lost nodes, 0: to
// none. Those are not its own.
type kept struct{ had, raised int32 }

// raisedTo stands between the two where they are written.
const raisedTo = ", raised to "

// ReplicasOf reads a *corev1.ConfigMap, whose keys are workloads' UIDs. Of a value that does not begin with a number
// nothing is known.
func ReplicasOf(o any) (*Replicas, error) {
	switch c := o.(type) {
	case *Replicas:
		return c, nil
	case *corev1.ConfigMap:
		r := &Replicas{ObjectMeta: identity(c), of: map[types.UID]kept{}}
		for uid, value := range c.Data {
			had, _, _ := strings.Cut(value, " ")
			_, raised, _ := strings.Cut(value, raisedTo)
			r.of[types.UID(uid)] = kept{had: max(1, number(had)), raised: number(raised)}
		}
		return r, nil
	}
	return nil, otherKind(o, "ConfigMap")
}

// number is 0 for what is none.
func number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// Of is how many replicas a workload comes back with: those that it had, 1 if nothing is known.
func (r *Replicas) Of(workload types.UID) int32 {
	if r == nil {
		return 1
	}
	return min(max(1, r.of[workload].had), ReplicasMost)
}

// Keeping is what changes in the ConfigMap for the workload to come back with its own replicas: values by key, nil for
// keys that go. raised is to how many it is raised now, because some are on lost nodes, 0: to none. A workload at zero
// has been raised to nothing. gone says which workloads are no more.
func (r *Replicas) Keeping(w *Workload, raised int32, gone func(types.UID) bool) map[types.UID]any {
	before := kept{had: 1}
	if r != nil {
		if of, known := r.of[w.UID]; known {
			before = of
		}
	}
	now := kept{had: w.Replicas, raised: raised}
	switch {
	case w.Replicas == 0:
		now.had = before.had
	case before.raised == w.Replicas:
		now.had, now.raised = before.had, max(raised, before.raised)
	}
	if now == before {
		return nil
	}
	data := map[types.UID]any{w.UID: nil}
	switch {
	case now.raised > 0:
		data[w.UID] = now.of(w) + raisedTo + strconv.Itoa(int(now.raised))
	case now.had > 1:
		data[w.UID] = now.of(w)
	}
	if r != nil {
		for uid := range r.of {
			if gone(uid) {
				data[uid] = nil
			}
		}
	}
	return data
}

// of is the beginning of a value, for ReplicasOf and for people.
func (k kept) of(w *Workload) string {
	return fmt.Sprintf("%d %s %s/%s", k.had, w.Kind, w.Namespace, w.Name)
}
