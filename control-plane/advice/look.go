package advice

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// cooldown is after what another autoscaler scales to zero if it does not say so: KEDA's default of cooldownPeriod.
	cooldown = 5 * time.Minute
	// servicesMost bounds what one question takes from Prometheus: some 100 MB.
	servicesMost = 500
)

// Asked is what is to be advised on.
type Asked struct {
	// Namespace is the only one; empty: all.
	Namespace string
	Window    history.Window
	// Bandwidth is with how many bytes per second clients send.
	Bandwidth float64
	// Worth is how many seconds of a replica one second is worth that a client waits.
	Worth float64
}

// Service is a service with what it would gain.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Requests are those of the time that was looked at.
	Requests float64 `json:"requests"`
	Replicas int     `json:"replicas"`
	// StartSeconds is what a pod takes to become ready, BodyBytes the mean of a request's, with its headers.
	StartSeconds float64 `json:"startSeconds"`
	BodyBytes    float64 `json:"bodyBytes"`
	// Annotations are those to set, none if the service stays as it is.
	Annotations map[string]string `json:"annotations,omitempty"`
	// With are other Services of the same workload, which need the same idle window. What is gained is told with the first.
	With []string `json:"with,omitempty"`
	// Replicas would be away for IdleReplicaSeconds in all. For ColdStarts starts requests wait WaitedSeconds in all, and
	// OverlappedSeconds less than if their bodies came after the start.
	IdleReplicaSeconds float64 `json:"idleReplicaSeconds"`
	ColdStarts         float64 `json:"coldStarts"`
	WaitedSeconds      float64 `json:"waitedSeconds"`
	OverlappedSeconds  float64 `json:"overlappedSeconds"`
	// Reason is why there is nothing to set.
	Reason string `json:"reason,omitempty"`
}

// Look advises on the services that the mesh has counted requests of. Those that would gain most come first.
func Look(ctx context.Context, r *objects.Reader, h History, a Asked) ([]Service, error) {
	c, err := gather(ctx, r, a.Namespace)
	if err != nil {
		return nil, err
	}
	if len(c.services) > servicesMost {
		return nil, fmt.Errorf("there are %d Services, more than the %d that are advised on at once: name a namespace by -n",
			len(c.services), servicesMost)
	}
	uses, err := read(ctx, h, a.Namespace)
	if err != nil {
		return nil, err
	}
	if err := c.gatewaysAmong(ctx, r, a.Namespace, uses); err != nil {
		return nil, err
	}
	services := []Service{}
	together := map[*object.Workload][]corev1.Service{}
	for _, k := range slices.SortedFunc(maps.Keys(uses), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}) {
		s, ok := c.services[k]
		if !ok {
			continue
		}
		if w, reason := c.workload(s); w != nil {
			together[w] = append(together[w], s)
		} else {
			services = append(services, Service{Namespace: s.Namespace, Name: s.Name, Requests: uses[k].total,
				BodyBytes: uses[k].bytes / uses[k].total, Reason: reason})
		}
	}
	for w, all := range together {
		services = append(services, c.advise(w, all, uses, a)...)
	}
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(b.IdleReplicaSeconds, a.IdleReplicaSeconds), cmp.Compare(b.OverlappedSeconds, a.OverlappedSeconds),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return services, nil
}

// advise is on the services of one workload, which is idle when all of them are.
func (c *cluster) advise(w *object.Workload, services []corev1.Service, uses map[key]used, a Asked) []Service {
	all := used{requests: make([]float64, a.Window.Points())}
	out := []Service{}
	inside := ""
	for _, s := range services {
		u := uses[key{s.Namespace, s.Name}]
		for i := range all.requests {
			all.requests[i] += u.requests[i]
		}
		if !annotated(s) { // else the daemon, which has no proxy, calls it for gateways
			inside = cmp.Or(inside, c.inside(u))
		}
		all.total, all.bytes, all.duration = all.total+u.total, all.bytes+u.bytes, all.duration+u.duration
		out = append(out, Service{Namespace: s.Namespace, Name: s.Name, Requests: u.total, Replicas: int(w.Replicas), BodyBytes: u.bytes / u.total})
	}
	for i := range min(a.Window.Index(w.CreationTimestamp.Time), len(all.requests)) {
		all.requests[i] = math.NaN() // there was nothing to be idle
	}
	start, seen := Start(c.podsOf(services[0]))
	use := Use{Requests: all.requests, Step: a.Window.Step, Start: start, Replicas: int(w.Replicas),
		Duration: time.Duration(all.duration / all.total * float64(time.Millisecond))}
	use.Upload = min(use.Duration, time.Duration(all.bytes/all.total/a.Bandwidth*float64(time.Second)))
	reason := ""
	scaler := c.scaler(w)
	switch {
	case scaler != nil && scaler.Least == 0:
		use.Anothers = cmp.Or(scaler.Cooldown, cooldown)
	case inside != "":
		reason = inside
	case scaler == nil:
	case scaler.Kind == object.ScaledObject:
		reason = fmt.Sprintf("ScaledObject %s keeps %d: let it scale to zero by minReplicaCount: 0", scaler.Name, scaler.Least)
	default:
		use.Replicas = min(use.Replicas, int(scaler.Least))
	}
	switch {
	case reason != "":
	case use.known() < trusted*max(windows[0], use.Step):
		reason = "too little is known of it yet: ask again later, or with a longer --since"
	case w.Replicas == 0 && !seen:
		reason = "it is at zero now: ask again while a pod is ready"
	case !seen:
		reason = "no pod tells how long it takes to start: all have been restarted, or none is ready"
	}
	for i := range out {
		if out[i].Reason = reason; reason != "" {
			continue
		}
		g := Of(use, a.Worth)
		out[i].StartSeconds = start.Seconds()
		out[i].Annotations, out[i].Reason = proposed(services[i], g, scaler)
		for _, other := range services {
			if other.Name != services[i].Name {
				out[i].With = append(out[i].With, other.Name)
			}
		}
		if i == 0 {
			out[i].IdleReplicaSeconds, out[i].ColdStarts = g.Idle.Seconds(), g.Cold
			out[i].WaitedSeconds, out[i].OverlappedSeconds = g.Waited.Seconds(), g.Overlapped.Seconds()
		}
	}
	return out
}

// annotated tells whether a service has an input, or scales to zero.
func annotated(s corev1.Service) bool {
	return s.Annotations[policy.KeyScaleToZero] != "" || hasInput(s)
}

func hasInput(s corev1.Service) bool {
	for name := range s.Annotations {
		if name == policy.KeyInput || strings.HasPrefix(name, filterapi.AnnotationNamed) {
			return true
		}
	}
	return false
}

// proposed are the annotations to set for a gain, or why there are none. What is set already stays.
func proposed(s corev1.Service, g Gain, scaler *object.Scaler) (set map[string]string, reason string) {
	inputs := hasInput(s)
	set = map[string]string{}
	if g.Window > 0 && s.Annotations[policy.KeyScaleToZero] == "" {
		set[policy.KeyScaleToZero] = text(g.Window)
	}
	if g.Overlapped > 0 && !inputs {
		set[policy.KeyInput] = policy.InputBody
	}
	switch {
	case len(set) > 0:
		return set, ""
	case annotated(s):
		return nil, "it has its annotations: headstart report tells what it gains"
	case scaler != nil && scaler.Least == 0:
		return nil, fmt.Sprintf("%s %s scales it to zero, and its requests have no bodies to speak of: an input from a store would help",
			scaler.Kind, scaler.Name)
	}
	return nil, "its pauses are too short for what a start costs"
}
