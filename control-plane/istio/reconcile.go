package istio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// turn is for how long changes are written before newer ones are looked at. What a round costs besides, to list what is
// there, is of the same size.
const turn = 100 * time.Millisecond

// change is an object that is not as it is to be.
type change struct {
	want   Function
	exists bool
	excess *unstructured.Unstructured // it is to go, and want is none
}

// reconcile makes the mesh as d says, as far as it goes: one object's failure does not
// keep the others from theirs. It is not whole if it was left for something newer.
func (w *Writer) reconcile(ctx context.Context, d Desired) (s Status, whole bool) {
	changes := make(map[string]change, len(d.Functions)) // by their objects' names
	for _, f := range d.Functions {
		changes[ObjectName(f.Name)] = change{want: f}
	}
	err := w.each(ctx, EnvoyFilter, Query{Labels: Selector}, func(old unstructured.Unstructured) {
		c, wanted := changes[old.GetName()]
		if !wanted {
			changes[old.GetName()] = change{exists: true, excess: new(named(old))}
			return
		}
		o, err := Object(w.cfg, c.want) // an error is a problem below
		if err == nil && contains(old.Object, o.Object) && old.GetLabels()[labelRevision] == w.cfg.Revision {
			delete(changes, old.GetName())
			s.Objects++
			return
		}
		changes[old.GetName()] = change{want: c.want, exists: true}
	})
	if apierrors.IsNotFound(err) {
		return Status{}, true
	}
	if err != nil {
		return Status{Problems: []Problem{problem(EnvoyFilter.String(), err)}}, true
	}
	s.Installed = true
	began := time.Now()
	for _, name := range inTurns(changes) {
		if len(w.wanted) > 0 && time.Since(began) > turn {
			return s, false
		}
		c := changes[name]
		if c.excess != nil {
			if err := w.remove(ctx, *c.excess); err != nil {
				s.Problems = append(s.Problems, asProblem(EnvoyFilter, c.excess, err))
			}
			continue
		}
		o, err := Object(w.cfg, c.want)
		if err != nil {
			s.Problems = append(s.Problems, Problem{Object: EnvoyFilter.String(), Cause: Rejected, Message: err.Error()})
			continue
		}
		if err := w.put(ctx, o, c.exists); err != nil {
			s.Problems = append(s.Problems, asProblem(EnvoyFilter, o, err))
			continue
		}
		s.Objects++
	}
	if err := w.configure(ctx, d.PluginConfig); err != nil {
		s.Problems = append(s.Problems, *err)
	}
	return s, true
}

// inTurns has each namespace's next change after one of each other namespace: one with a thousand keeps nobody from
// his. Of a namespace's own, changes of what is there come first, as somebody uses that.
func inTurns(changes map[string]change) []string {
	names := slices.SortedFunc(maps.Keys(changes), func(a, b string) int {
		if was, is := changes[a].exists, changes[b].exists; was != is {
			if was {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	before := map[string]int{} // changes of a namespace
	turns := make(map[string]int, len(names))
	for _, name := range names {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(name, namePrefix), ".")
		turns[name] = before[namespace]
		before[namespace]++
	}
	slices.SortStableFunc(names, func(a, b string) int { return turns[a] - turns[b] })
	return names
}

// named is an object without its content.
func named(o unstructured.Unstructured) unstructured.Unstructured {
	n := unstructured.Unstructured{Object: map[string]any{}}
	n.SetNamespace(o.GetNamespace())
	n.SetName(o.GetName())
	n.SetUID(o.GetUID())
	return n
}

// put applies an object that is not so already. What bears our labels is ours: another manager that has
// changed a field of it loses.
func (w *Writer) put(ctx context.Context, o *unstructured.Unstructured, exists bool) error {
	if !exists {
		namesakes, err := w.list(ctx, EnvoyFilter, Query{Name: o.GetName()})
		if err != nil {
			return err
		}
		if len(namesakes) > 0 && !ours(namesakes[0]) {
			return Problem{
				Object: describe(EnvoyFilter, o), Cause: NotOurs,
				Message: "is there without the labels of a generated object",
				Fix:     "delete or rename it: the name belongs to the function",
			}
		}
	}
	return w.apply(ctx, EnvoyFilter, o, true)
}

func ours(o unstructured.Unstructured) bool {
	l := o.GetLabels()
	return l[labelManagedBy] == managedBy && l[labelComponent] == component
}

// Remove deletes all generated objects, so that the gateways go back to Istio's
// endpoints. It is for the end of the installation, when no Writer runs.
func (w *Writer) Remove(ctx context.Context) error {
	var have []unstructured.Unstructured
	err := w.each(ctx, EnvoyFilter, Query{Labels: Selector}, func(o unstructured.Unstructured) {
		have = append(have, named(o))
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		// Without Istio there is nothing, and without the chart's role for it neither.
		w.log.Info("there is no mesh", "cause", err)
		return nil
	}
	if err != nil {
		return problem(EnvoyFilter.String(), err)
	}
	var errs []error
	for _, o := range have {
		if err := w.remove(ctx, o); err != nil {
			errs = append(errs, asProblem(EnvoyFilter, &o, err))
		}
	}
	return errors.Join(errs...)
}

func (w *Writer) remove(ctx context.Context, o unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := w.api.Delete(ctx, EnvoyFilter, o.GetNamespace(), o.GetName(), o.GetUID())
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// configure gives the filter its configuration, in the TrafficExtension or the
// WasmPlugin, whichever is there. The object is not ours: a field that another manager
// holds is left to it.
func (w *Writer) configure(ctx context.Context, config []byte) *Problem {
	if config == nil {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(config, &fields); err != nil {
		return &Problem{Object: PrefetchName, Cause: Rejected, Message: fmt.Sprintf("plugin configuration: %v", err)}
	}
	found := false
	for _, c := range carriers {
		list, err := w.list(ctx, c.kind, Query{Name: PrefetchName})
		if apierrors.IsNotFound(err) {
			continue // an Istio without this kind
		}
		if err != nil {
			return new(problem(c.kind.String(), err))
		}
		for _, old := range list {
			found = true
			if err := w.putConfig(ctx, c, old, fields); err != nil {
				return new(asProblem(c.kind, &old, err))
			}
		}
	}
	if !found {
		return &Problem{
			Object: fmt.Sprintf("%s %s/%s", TrafficExtension, w.cfg.namespace(), PrefetchName), Cause: Missing,
			Message: "is not there: gateways name no inputs",
			Fix:     "install the chart with its Istio part, or apply manifests/istio/traffic-extension.yaml",
		}
	}
	return nil
}

// carriers are the kinds that bring the filter, with the place of its configuration.
var carriers = []carrier{
	{TrafficExtension, []string{"spec", "wasm", "pluginConfig"}},
	{WasmPlugin, []string{"spec", "pluginConfig"}},
}

type carrier struct {
	kind Kind
	path []string
}

func (w *Writer) putConfig(ctx context.Context, c carrier, old unstructured.Unstructured, config map[string]any) error {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(c.kind.GVK)
	o.SetNamespace(old.GetNamespace())
	o.SetName(old.GetName())
	if err := unstructured.SetNestedMap(o.Object, config, c.path...); err != nil {
		return err
	}
	// Equal, not only contained: the filter refuses what it does not know, so what an
	// older control plane has written must go.
	if has, _, _ := unstructured.NestedMap(old.Object, c.path...); reflect.DeepEqual(has, config) {
		return nil
	}
	o.SetUID(old.GetUID())
	return w.apply(ctx, c.kind, o, false)
}

func (w *Writer) each(ctx context.Context, k Kind, q Query, do func(unstructured.Unstructured)) error {
	return w.api.Each(ctx, k, w.cfg.namespace(), q, do)
}

// list is for the one object with a name, or none.
func (w *Writer) list(ctx context.Context, k Kind, q Query) (all []unstructured.Unstructured, err error) {
	err = w.each(ctx, k, q, func(o unstructured.Unstructured) { all = append(all, o) })
	return all, err
}

func (w *Writer) apply(ctx context.Context, k Kind, o *unstructured.Unstructured, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return w.api.Apply(ctx, k, o, force)
}

func describe(k Kind, o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", k, o.GetNamespace(), o.GetName())
}

func asProblem(k Kind, o *unstructured.Unstructured, err error) Problem {
	if p, ok := errors.AsType[Problem](err); ok {
		return p
	}
	return problem(describe(k, o), err)
}
