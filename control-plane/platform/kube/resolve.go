package kube

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// function is a function with what is known of it now. Its fields but moved are replaced,
// never changed in place.
type function struct {
	*catalog.Function
	instances []*instance // by id
	endpoints []platform.Endpoint
	pending   []*object.Pod // its pods without a node
	lost      int           // its pods on nodes that are lost
	workload  *workload     // nil: none, or several
	since     time.Time     // when it was first seen
	forget    time.Time     // when it is forgotten, if it is withdrawn
	turn      int           // of the equally good instances
	// moved is closed, and replaced, when something that an activation may wait for has
	// changed.
	moved chan struct{}
}

// wake has those look again who wait for the function; the caller holds mu.
func (f *function) wake() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// workloadKey names a workload.
type workloadKey struct{ kind, namespace, name string }

func keyOf(w *object.Workload) workloadKey { return workloadKey{w.Kind, w.Namespace, w.Name} }

// workload is what makes the pods of one or several functions, as it is scaled by us.
type workload struct {
	workloadKey
	functions []*function
	// window is how long all its functions have to be idle before it is scaled to zero;
	// 0: that is not ours to do.
	window time.Duration
	wakes  bool // it is ours to scale from zero
	// observed: a function of it is only observed.
	observed bool
	// scaler is the autoscaler that has it, and least how few replicas that leaves.
	scaler string
	least  int32
	up     *attempt
	down   *withdrawal
	doomed map[string]time.Time // pods by their UID, which are going; until when that is believed
}

// again returns what is done when the object may have changed the namespace's functions.
func again[T interface {
	comparable
	metav1.Object
}](p *Platform) func(before, now T) {
	return func(before, now T) {
		var none T
		if now == none {
			now = before
		}
		if p.open {
			p.doubt(now.GetNamespace())
		}
	}
}

// serviceChanged looks at the namespace of a Service that is, or was, of interest; mu is
// held.
func (p *Platform) serviceChanged(before, now *object.Service) {
	for _, s := range []*object.Service{before, now} {
		if s != nil && (s.Knative || len(s.Annotations) > 0) {
			again[*object.Service](p)(before, now)
			return
		}
	}
}

// doubt has a namespace read again soon; the caller holds mu. A large one takes tens of milliseconds: however
// often it changes, it is read once for all changes since, and every other one has its turn in between.
func (p *Platform) doubt(namespace string) {
	if !slices.Contains(p.doubted, namespace) {
		p.doubted = append(p.doubted, namespace)
	}
	select {
	case p.doubts <- struct{}{}:
	default:
	}
}

// resolveDoubted reads namespaces again, one at a time, until ctx ends.
func (p *Platform) resolveDoubted(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.doubts:
		}
		for more := true; more && ctx.Err() == nil; {
			p.mu.Lock()
			if more = len(p.doubted) > 0; more {
				namespace := p.doubted[0]
				p.doubted = p.doubted[1:]
				p.resolve(namespace)
			}
			p.mu.Unlock()
		}
	}
}

// resolve reads a namespace anew; the caller holds mu.
func (p *Platform) resolve(namespace string) {
	m := &p.mirrors
	read, problems := p.reader.Read(namespace, catalog.Objects{
		Services: m.services.Of(namespace), Deployments: m.deployments.Of(namespace), StatefulSets: m.statefulSets.Of(namespace),
		Autoscalers: m.autoscalers.Of(namespace), ScaledObjects: m.scaledObjects.Of(namespace),
		KnativeServices: m.knativeServices.Of(namespace), Revisions: m.revisions.Of(namespace), Workflows: m.workflows.Of(namespace)})
	wanted := map[string]*catalog.Function{}
	for _, f := range read {
		wanted[f.Name] = f
	}
	for name, f := range p.inside[namespace] {
		if wanted[name] == nil && !f.Withdrawn {
			p.disown(f)
		}
	}
	for _, f := range read {
		p.take(namespace, f)
	}
	p.regroup(namespace)
	for _, f := range p.inside[namespace] {
		p.refresh(f)
	}
	p.renote(namespace)
	p.tell(namespace, problems)
}

// take makes the function what it was read as; the caller holds mu.
func (p *Platform) take(namespace string, read *catalog.Function) {
	f := p.functions[read.Name]
	if f == nil {
		f = &function{Function: &catalog.Function{}, moved: make(chan struct{}), since: time.Now()}
		if p.inside[namespace] == nil {
			p.inside[namespace] = map[string]*function{}
		}
		p.functions[read.Name], p.inside[namespace][read.Name] = f, f
		p.activity.Touch(read.Name)
	} else if f.Withdrawn {
		p.activity.Touch(read.Name)
	}
	read.Generation = f.Generation
	if !reflect.DeepEqual(f.Function.Function, read.Function) {
		p.generation++
		read.Generation = p.generation
		p.changed()
	}
	f.Function = read
}

// withdrawnFor is how long nodes keep a function that is none any more: longer than istiod collects
// changes (PILOT_DEBOUNCE_MAX, 10 s) and pushes them. Until then a gateway's cluster still names
// the function, and may send what it is asked to the node's daemon.
const withdrawnFor = 30 * time.Second

// disown makes what was a function none. Another function may have its hosts at once; the caller
// holds mu.
func (p *Platform) disown(f *function) {
	was := *f.Function
	was.Hosts, was.Withdrawn = nil, true
	p.generation++
	was.Generation = p.generation
	f.Function, f.forget = &was, time.Now().Add(withdrawnFor)
	delete(p.activity.Last, f.Name) // its nodes do not say again that it is busy, should it come back
	p.events.Forget(f.Name)
	p.changed()
}

// forgetWithdrawn forgets the functions of which all gateways have heard that they are none; the
// caller holds mu.
func (p *Platform) forgetWithdrawn() {
	for name, f := range p.functions {
		if !f.Withdrawn || time.Now().Before(f.forget) {
			continue
		}
		namespace, _, _ := strings.Cut(name, "/")
		delete(p.functions, name)
		if delete(p.inside[namespace], name); len(p.inside[namespace]) == 0 {
			delete(p.inside, namespace)
		}
		f.wake()
		p.changed()
	}
}

// deployed returns the function, nil if it is none or none any more; the caller holds mu.
func (p *Platform) deployed(name string) *function {
	if f := p.functions[name]; f != nil && !f.Withdrawn {
		return f
	}
	return nil
}

// regroup finds the workloads of a namespace's functions; the caller holds mu.
func (p *Platform) regroup(namespace string) {
	for key, w := range p.workloads {
		if key.namespace == namespace {
			w.functions, w.window, w.wakes, w.scaler, w.least, w.observed = nil, 0, false, "", 0, false
		}
	}
	for _, f := range p.inside[namespace] {
		f.workload = nil
		if f.Workload == nil || f.Withdrawn {
			continue
		}
		key := keyOf(f.Workload)
		w := p.workloads[key]
		if w == nil {
			w = &workload{workloadKey: key, doomed: map[string]time.Time{}}
			p.workloads[key] = w
		}
		f.workload = w
		w.functions = append(w.functions, f)
		if f.ScalesToZero {
			w.window = f.Policy.ScaleToZero
		}
		w.wakes, w.observed = w.wakes || f.Wakes, w.observed || f.Policy.Observe
		w.scaler, w.least = f.Scaler, f.Least
	}
	for key, w := range p.workloads {
		if key.namespace == namespace && len(w.functions) == 0 {
			delete(p.workloads, key)
		}
		if w.observed {
			w.window = 0 // nobody hears of all its requests
		}
	}
}

// tell has the namespace's problems known, as far as they are new; the caller holds mu.
func (p *Platform) tell(namespace string, problems []catalog.Problem) {
	for _, problem := range problems {
		if slices.Contains(p.problems[namespace], problem) {
			continue
		}
		p.events.Add(problem.Function, event.Event{Reason: problem.Reason, Message: problem.Message, Field: problem.Field})
		p.report(problem.Function, problem.Knative, problem.Reason, problem.Message)
	}
	for _, old := range p.problems[namespace] {
		if p.deployed(old.Function) == nil && !slices.ContainsFunc(
			problems, func(now catalog.Problem) bool { return now.Function == old.Function },
		) {
			p.events.Forget(old.Function)
		}
	}
	if p.problems[namespace] = problems; len(problems) == 0 {
		delete(p.problems, namespace)
	}
}
