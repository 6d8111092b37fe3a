package advice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pullLeast is how long after its sandbox a pod's first container begins if an image is pulled in between. Pods say
// seconds only, so less is no sign of it.
const pullLeast = 2 * time.Second

// Start is how long pods took from their creation to their readiness, without the time that images took to come: a function
// that comes back finds them on its node. Those that were restarted say nothing. The quarters that were fastest and
// slowest are left out.
func Start(pods []corev1.Pod) (start time.Duration, known bool) {
	var all []time.Duration
	for i := range pods {
		if took, ok := startOf(&pods[i]); ok {
			all = append(all, took)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	all = all[len(all)/4 : len(all)-len(all)/4]
	var sum time.Duration
	for _, took := range all {
		sum += took
	}
	return sum / time.Duration(len(all)), true
}

func startOf(p *corev1.Pod) (time.Duration, bool) {
	at := map[corev1.PodConditionType]time.Time{}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			at[c.Type] = c.LastTransitionTime.Time
		}
	}
	var first time.Time
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range statuses {
			began := time.Time{}
			switch {
			case c.RestartCount > 0:
				return 0, false
			case c.State.Running != nil:
				began = c.State.Running.StartedAt.Time
			case c.State.Terminated != nil:
				began = c.State.Terminated.StartedAt.Time
			}
			if first.IsZero() || began.Before(first) {
				first = began
			}
		}
	}
	ready, sandbox := at[corev1.PodReady], at[corev1.PodReadyToStartContainers]
	if ready.IsZero() || p.CreationTimestamp.IsZero() || ready.Before(p.CreationTimestamp.Time) {
		return 0, false
	}
	took := ready.Sub(p.CreationTimestamp.Time)
	if pull := first.Sub(sandbox); !sandbox.IsZero() && pull >= pullLeast {
		took -= pull
	}
	return max(0, took), true
}
