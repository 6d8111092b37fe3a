package kube_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// jobPod is a pod of a Job's, with a node.
func jobPod(name, input string, annotations ...string) *corev1.Pod {
	runtime := "headstart"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u1", Annotations: map[string]string{"headstart.dev/input": input}},
		Spec:   corev1.PodSpec{NodeName: "edge", RuntimeClassName: &runtime, Containers: []corev1.Container{{Name: "digest", Image: "digest:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func (w *world) jobs(node string) []*nodeapi.Job {
	w.settle()
	return w.p.InstancesOf(node).GetJobs()
}

// A node hears of a job when its pod is bound, and until that has ended.
func TestANodeIsToldItsJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		pods := a.client.CoreV1().Pods(namespace)
		create := func(p *corev1.Pod) {
			t.Helper()
			if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create(jobPod("digest-x", "s3://videos/camera-7/1.mjpeg", "headstart.dev/read-by", "socket", "headstart.dev/ready-timeout", "5m"))
		other := jobPod("other", "s3://videos/a")
		other.Spec.RuntimeClassName = nil
		create(other)
		got := w.jobs("edge")
		if len(got) != 1 || len(w.jobs("cloud")) != 0 {
			t.Fatalf("told: %v", got)
		}
		j := got[0]
		if j.GetId() != "default_digest-x_u1" || j.GetName() != "default/digest-x" || j.GetInput() != "s3://videos/camera-7/1.mjpeg" || j.GetStore() != "default" ||
			j.GetInputLimit() != 1<<30 || !j.GetBySocket() || j.GetReadyTimeout().AsDuration() != 5*time.Minute || j.GetRefused() != nil {
			t.Errorf("told: %v", j)
		}
		w.podStatus(namespace, "digest-x", func(s *corev1.PodStatus) { s.Phase = corev1.PodRunning })
		if len(w.jobs("edge")) != 1 {
			t.Error("it runs, and the node is not told of it")
		}
		w.podStatus(namespace, "digest-x", func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
		if got := w.jobs("edge"); len(got) != 0 {
			t.Errorf("it has ended: %v", got)
		}
		// One that goes before it has ended.
		create(jobPod("digest-y", "s3://videos/a"))
		if len(w.jobs("edge")) != 1 {
			t.Error("the node is not told of it")
		}
		if err := pods.Delete(t.Context(), "digest-y", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := w.jobs("edge"); len(got) != 0 {
			t.Errorf("it is gone: %v", got)
		}
	})
}

// What came past the admission policy keeps the pod from starting, and says why.
func TestAJobWithWrongAnnotationsIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		for name, p := range map[string]*corev1.Pod{
			"a-template":      jobPod("a-template", "s3://videos/{header.x-key}"),
			"another-bucket":  jobPod("another-bucket", "s3://payroll/a"),
			"an-unknown-word": jobPod("an-unknown-word", "s3://videos/a", "headstart.dev/read-by", "fd"),
		} {
			if _, err := a.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			j := w.jobs("edge")[0]
			r := j.GetRefused()
			if r.GetReason() != "AnnotationsRefused" || !strings.HasPrefix(r.GetField(), "headstart.dev/") || !strings.HasPrefix(r.GetMessage(), r.GetField()) || j.GetInput() != "" {
				t.Errorf("%s: told %v", name, j)
			}
			if err := a.client.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.jobs("edge")
		}
	})
}

// A pod with volumes is told of like a job, from its binding on: a function's own pods are no jobs.
func TestANodeIsToldThePodsVolumes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		for name, list := range map[string]string{"chat": "models=s3://videos/llama/", "wrong": "models=s3://private/"} {
			p := jobPod(name, "", "headstart.dev/volumes", list, "headstart.dev/volumes-wait", "90s")
			delete(p.Annotations, "headstart.dev/input")
			if _, err := a.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		told := w.p.InstancesOf("edge")
		if len(told.GetJobs()) != 0 || len(told.GetVolumes()) != 2 {
			t.Fatalf("told: %v", told)
		}
		chat, wrong := told.GetVolumes()[0], told.GetVolumes()[1]
		if chat.GetId() != "default_chat_u1" || chat.GetStore() != "default" || chat.GetWait().AsDuration() != 90*time.Second ||
			chat.GetStartLate() || chat.GetVolumes()[0].GetPrefix() != "s3://videos/llama/" || chat.GetRefused() != nil {
			t.Errorf("told: %v", chat)
		}
		if wrong.GetRefused().GetField() != "headstart.dev/volumes" || len(wrong.GetVolumes()) != 0 {
			t.Errorf("told of a bucket that the store does not allow: %v", wrong)
		}
		w.podStatus(namespace, "chat", func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
		w.settle()
		if got := w.p.InstancesOf("edge").GetVolumes(); len(got) != 1 {
			t.Errorf("it has ended: %v", got)
		}
	})
}
