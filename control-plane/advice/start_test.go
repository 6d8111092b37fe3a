package advice

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var created = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// podOf has its sandbox, its container and its readiness after so many seconds; negative: never.
func podOf(sandbox, began, ready int) corev1.Pod {
	at := func(s int) metav1.Time { return metav1.NewTime(created.Add(time.Duration(s) * time.Second)) }
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}}
	for kind, s := range map[corev1.PodConditionType]int{corev1.PodReadyToStartContainers: sandbox, corev1.PodReady: ready} {
		if s >= 0 {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at(s)})
		}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(began)}}}}
	return p
}

// beside adds a container before the pod's own, such as a sidecar of the mesh, that began after so many seconds.
func beside(p corev1.Pod, began int) corev1.Pod {
	first := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(created.Add(time.Duration(began) * time.Second))}}}
	p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, first)
	return p
}

func TestStart(t *testing.T) {
	restarted := podOf(1, 2, 9)
	restarted.Status.ContainerStatuses[0].RestartCount = 1
	for name, c := range map[string]struct {
		pods  []corev1.Pod
		want  time.Duration
		known bool
	}{
		"none":                          {nil, 0, false},
		"one":                           {[]corev1.Pod{podOf(1, 1, 4)}, 4 * time.Second, true},
		"the median":                    {[]corev1.Pod{podOf(1, 1, 3), podOf(1, 2, 4)}, 3500 * time.Millisecond, true},
		"an image was pulled":           {[]corev1.Pod{podOf(1, 31, 34)}, 4 * time.Second, true},
		"without the sandbox's time":    {[]corev1.Pod{podOf(-1, 31, 34)}, 34 * time.Second, true},
		"not ready":                     {[]corev1.Pod{podOf(1, 1, -1)}, 0, false},
		"restarted":                     {[]corev1.Pod{restarted}, 0, false},
		"one was ready again after 5 m": {[]corev1.Pod{podOf(1, 1, 3), podOf(1, 1, 4), podOf(1, 1, 300)}, 4 * time.Second, true},
		"ready again after an hour":     {[]corev1.Pod{podOf(1, 1, 3600)}, 0, false},
		"beside a sidecar":              {[]corev1.Pod{beside(podOf(1, 62, 65), 1)}, 4 * time.Second, true},
		"at once":                       {[]corev1.Pod{podOf(0, 0, 0)}, 500 * time.Millisecond, true},
		"restarted ones do not count":   {[]corev1.Pod{restarted, podOf(1, 1, 4)}, 4 * time.Second, true},
	} {
		if got, known := Start(c.pods); got != c.want || known != c.known {
			t.Errorf("%s: %v, %v; want %v", name, got, known, c.want)
		}
	}
}
