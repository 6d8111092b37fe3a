package knative

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const (
	apiVersion       = "serving.knative.dev/v1"
	kind             = "Service"
	defaultNamespace = "default"
	// Domain ends the long form of a function's host.
	Domain = "headstart.local"
	// hostnameLabel is the only node label that the embedded platform has.
	hostnameLabel = "kubernetes.io/hostname"
	// Knative's defaults for revision-timeout-seconds and max-revision-timeout-seconds.
	defaultTimeout, maxTimeout = 300, 600 // seconds
)

// read reads one document, of a function or a workflow.
func (d *document) read(v value, st stores.Stores, ds destinations.Destinations) platform.Function {
	switch {
	case said(v.node, "kind") == workflowKind:
		return d.workflow(v, st)
	case said(v.node, "kind") == kind && said(v.node, "apiVersion") == "v1" && said(v.node, "metadata", "annotations", policy.KeyWorkflow) != "":
		d.beside = true // on Kubernetes it takes the workflow's requests
		return platform.Function{}
	}
	return d.service(v, st, ds)
}

// service reads one document. Its result counts only when no problem was noted.
func (d *document) service(v value, st stores.Stores, ds destinations.Destinations) platform.Function {
	o := v.object()
	if !d.is(o, apiVersion, kind) {
		return platform.Function{}
	}
	var f platform.Function
	meta := o.must("metadata", "give the function a name").object()
	name, namespace := d.named(meta)
	annotations := meta.take("annotations").object()
	f.Policy = d.policy(annotations, st.For(namespace))
	meta.close()
	if f.Policy.Observe {
		annotations.take(policy.KeyMode).reportAs(policy.ModeObserve, "is "+unsupported,
			"remove it or run on Kubernetes: here requests have no other way than Headstart's")
	}
	if f.Policy.State != "" {
		meta.self.report("has "+policy.KeyState+", which is of workflows", "remove it")
	}
	if f.Policy.Workflow != "" {
		meta.self.report("has "+policy.KeyWorkflow+", which is of Services without a program", "remove it")
	}
	spec := o.must("spec", "describe the function").object()
	template := spec.must("template", "describe the function").object()
	pods := d.templateMetadata(template.take("metadata").object(), st.For(namespace), ds.For(namespace), &f)
	f.Policy.Volumes, f.Policy.S3, f.Policy.Connections = pods.Volumes, pods.S3, pods.Connections
	podSpec(template.must("spec", "describe the function's container").object(), &f)
	if f.OneAtATime = f.OneAtATime || f.Policy.RunsAhead; !f.OneAtATime {
		f.MaxInstances = 0
	}
	template.close()
	spec.close()
	o.refuse("status", "remove it; the cluster writes it")
	o.close()

	f.Name = namespace + "/" + name
	f.Hosts = hosts(name, namespace)
	setRuntimeEnv(&f, name)
	return f
}

// is reports whether the document is one for us. Of any other kind, not a single field is
// looked at: each would be refused.
func (d *document) is(o object, apiVersion, kind string) bool {
	ok := true
	for _, want := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		v := o.must(want[0], "write "+want[1])
		s := v.text()
		fix := fmt.Sprintf("use %s of %s, or run on Kubernetes", kind, apiVersion)
		if s == jobKind {
			fix = "run it by `headstart run`"
		}
		if v.present() && s != want[1] {
			v.reportAs(s, "is "+unsupported, fix)
		}
		ok = ok && s == want[1]
	}
	return ok
}

// named reads what a document's object is called; its annotations are left in o.
func (d *document) named(o object) (name, namespace string) {
	d.name = o.must("name", field.LabelFix)
	name = d.name.label()
	namespace = defaultNamespace
	if ns := o.take("namespace"); ns.present() {
		namespace = ns.label()
	}
	if name != "" && namespace != "" {
		d.function = namespace + "/" + name
	}
	o.take("labels").object().texts()
	return name, namespace
}

// policy reads the function's own annotations; those of other domains have no effect.
func (d *document) policy(o object, st stores.Stores) policy.Policy {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if strings.HasPrefix(key, autoscaling) {
			o.fields[key].report("has no effect here", "move it to spec.template.metadata.annotations")
		}
	}
	return d.parsed(o, func(given map[string]string) (policy.Policy, error) { return policy.Parse(given, st) })
}

// parsed reads annotations by parse, and notes its problems where they stand.
func (d *document) parsed(o object, parse func(map[string]string) (policy.Policy, error)) policy.Policy {
	p, err := parse(o.texts())
	for _, e := range fieldErrors(err) {
		at := o.take(e.Field)
		d.add(at.line, &field.Error{Field: at.path, Value: e.Value, Problem: e.Problem, Fix: e.Fix})
	}
	return p
}

func podSpec(o object, f *platform.Function) {
	f.RequestTimeout = time.Duration(o.take("timeoutSeconds").integer(1, maxTimeout, defaultTimeout)) * time.Second
	switch v := o.take("containerConcurrency"); v.integer(0, 1000, 0) {
	case 0:
	case 1:
		f.OneAtATime = true
	default:
		v.report("limits of more than one request are "+unsupported, "use 0 or 1, or run on Kubernetes")
	}
	f.Node = node(o)
	container(theContainer(o, "describe the one container that serves requests"), f)
	o.close()
}

// node is the only one that a pod may run on, empty for any.
func node(pod object) string {
	selector := pod.take("nodeSelector").object()
	name := selector.take(hostnameLabel).label()
	selector.close()
	return name
}

// theContainer is the pod's only one.
func theContainer(pod object, fix string) object {
	containers := pod.must("containers", fix)
	if containers.present() && len(containers.node.Content) == 0 {
		containers.report("is empty", fix)
	}
	for _, c := range containers.list(1) {
		return c.object()
	}
	return value{doc: pod.self.doc, path: containers.path, line: containers.line}.object()
}
