package advice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// pullLeast is how long a container begins after the one before it if its image is pulled in between. Pods say
	// seconds only, so less is no sign of it.
	pullLeast = 2 * time.Second
	// startLeast is what a start takes that is shorter than the seconds that pods say.
	startLeast = 500 * time.Millisecond
)

// Start is how long pods took from their creation to their readiness, without the time that images took to come: a function
// that comes back finds them on its node. It is the median. Pods that were restarted say nothing, nor do those that have lost
// their readiness since: they are ready long after their containers have begun.
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
	return max(startLeast, (all[(len(all)-1)/2]+all[len(all)/2])/2), true
}

func startOf(p *corev1.Pod) (time.Duration, bool) {
	at := map[corev1.PodConditionType]time.Time{}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			at[c.Type] = c.LastTransitionTime.Time
		}
	}
	var pulled time.Duration
	before := at[corev1.PodReadyToStartContainers]
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) { // which begin one after the other
		var began, over time.Time
		switch {
		case c.RestartCount > 0:
			return 0, false
		case c.State.Running != nil:
			began = c.State.Running.StartedAt.Time
			over = began
		case c.State.Terminated != nil:
			began, over = c.State.Terminated.StartedAt.Time, c.State.Terminated.FinishedAt.Time
		default:
			continue
		}
		if gap := began.Sub(before); gap >= pullLeast && !before.IsZero() {
			pulled += gap
		}
		before = over
	}
	ready := at[corev1.PodReady]
	if ready.IsZero() || p.CreationTimestamp.IsZero() || ready.Before(p.CreationTimestamp.Time) || ready.Sub(before) > policy.MaxReadyTimeout {
		return 0, false
	}
	return max(0, ready.Sub(p.CreationTimestamp.Time)-pulled), true
}
