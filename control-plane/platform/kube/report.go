package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/mirror"
)

const (
	// reportsMost is how many events wait for the API server; further ones are only in
	// `headstart status`.
	reportsMost = 256
	// reportTimeout bounds one event's creation.
	reportTimeout = 5 * time.Second
	// noteMost is the longest message of an event that the API server takes, in bytes.
	noteMost = 1024
	// component is who the events are from.
	component = "headstart-controlplane"
)

// reporter writes Kubernetes Events, so that they are seen where the object's owner looks.
type reporter struct {
	client kubernetes.Interface
	log    *slog.Logger
	queue  chan *corev1.Event
}

func newReporter(c kubernetes.Interface, log *slog.Logger) *reporter {
	return &reporter{client: c, log: log, queue: make(chan *corev1.Event, reportsMost)}
}

// run writes what comes until ctx ends.
func (r *reporter) run(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			err := r.write(ctx, e)
			if err != nil && !failing && ctx.Err() == nil {
				r.log.Warn("an event could not be written; those that follow may be missing, too", "namespace", e.Namespace, "object", e.InvolvedObject.Name, "reason", e.Reason, "error", err)
			}
			failing = err != nil
		}
	}
}

func (r *reporter) write(ctx context.Context, e *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err := r.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // a control plane before this one has written it
		return nil
	}
	return err
}

// report has an event written on the Service, or Knative Service, of that name; the caller
// holds mu.
func (p *Platform) report(function string, knative bool, reason, message string) {
	namespace, name, _ := strings.Cut(function, "/")
	object := corev1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: namespace, Name: name}
	if knative {
		object.APIVersion = knativeService.GroupVersion().String()
		if s := p.mirrors.knativeServices.Get(namespace, name); s != nil {
			object.UID = s.UID
		}
	} else if s := p.mirrors.services.Get(namespace, name); s != nil {
		object.UID = s.UID
	}
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name + "." + digest(object.UID, reason, message)},
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: reason, Message: strings.ToValidUTF8(message[:min(len(message), noteMost)], ""),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	select {
	case p.reporter.queue <- e:
	default: // it is in the event log
	}
}

// digest names an event by what it says, so that a restart does not say it twice.
func digest(uid types.UID, reason, message string) string {
	sum := sha256.Sum256([]byte(string(uid) + "\x00" + reason + "\x00" + message))
	return hex.EncodeToString(sum[:8])
}

// watchMirrors logs what has changed with the copies of the cluster's objects; the caller
// holds mu.
func (p *Platform) watchMirrors() {
	for i, o := range p.mirrors.all() {
		now := o.Status()
		if i == len(p.mirrors.told) {
			p.mirrors.told = append(p.mirrors.told, mirror.Status{})
		}
		before := p.mirrors.told[i]
		if p.mirrors.told[i] = now; before.Phase == now.Phase {
			continue
		}
		switch {
		case now.OK() && before.Phase != mirror.Opening:
			p.log.Info(
				"the cluster's objects are followed again, or no longer exist", "resource", now.Resource, "phase",
				now.Phase,
			)
		case now.Phase == mirror.Denied && now.Optional:
			p.log.Warn("a kind of objects is left out", "resource", now.Resource, "problem", now.Message)
		case !now.OK():
			p.log.Error(
				"the cluster's objects cannot be followed; the last known state stays in use", "resource", now.Resource,
				"problem", now.Message,
			)
		}
	}
}
