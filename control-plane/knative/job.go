package knative

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const (
	jobVersion = "batch/v1"
	jobKind    = "Job"
)

// ParseJob reads the one Job of batch/v1 that a manifest holds: the subset that the embedded
// platform runs. It is an error as Parse's is, when the document is at fault.
func ParseJob(r io.Reader, st stores.Stores, ds destinations.Destinations) (platform.Job, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return platform.Job{}, fmt.Errorf("reading the job: %w", err)
	}
	if len(data) > maxDocument {
		return platform.Job{}, fmt.Errorf("the job is larger than %d bytes", maxDocument)
	}
	var job platform.Job
	number := 0
	for chunk := range split(data) {
		root, err := parseYAML(chunk)
		if root == nil && err == nil {
			continue
		}
		number++
		if err != nil {
			return platform.Job{}, Errors{{Document: number, Line: err.line, Err: err}}
		}
		if number > 1 {
			return platform.Job{}, fmt.Errorf("more than one document; run one %s of %s at a time", jobKind, jobVersion)
		}
		d := &document{number: number, lines: chunk.line - 1, isJob: true}
		job = d.job(value{doc: d, line: root.Line, node: root}, st, ds)
		if errs := d.problems(); len(errs) > 0 {
			return platform.Job{}, errs
		}
	}
	if number == 0 {
		return platform.Job{}, fmt.Errorf("no document in the manifest; it needs a %s of %s", jobKind, jobVersion)
	}
	return job, nil
}

// job reads one document. Its result counts only when no problem was noted.
func (d *document) job(v value, st stores.Stores, ds destinations.Destinations) platform.Job {
	o := v.object()
	if !d.is(o, jobVersion, jobKind) {
		return platform.Job{}
	}
	name, namespace := d.named(o.must("metadata", "give the job a name").object())
	spec := o.must("spec", "describe the job").object()
	once(spec)
	timeout := time.Duration(spec.take("activeDeadlineSeconds").integer(1, math.MaxInt32, 0)) * time.Second
	template := spec.must("template", "describe the job's pod").object()
	spec.close()
	meta := template.take("metadata").object()
	meta.take("labels").object().texts()
	parsed := d.parsed(meta.take("annotations").object(), func(given map[string]string) (policy.Policy, error) {
		return policy.ParseJob(given, st.For(namespace), ds.For(namespace))
	})
	meta.close()
	var f platform.Function
	pod := template.must("spec", "describe the job's container").object()
	template.close()
	if p := pod.must("restartPolicy", "write Never"); p.present() && p.text() != "Never" {
		p.report("is not Never", "write Never, or run on Kubernetes: the embedded platform runs a job once")
	}
	if p := pod.take("runtimeClassName"); p.present() && p.text() != "headstart" {
		p.report(unsupported, "use headstart or remove it")
	}
	f.Node = node(pod)
	c := theContainer(pod, "describe the one container that runs")
	c.refuse("ports", "remove it; a job takes no requests")
	c.refuse("readinessProbe", "remove it; a job takes no requests")
	container(c, &f)
	pod.close()
	o.refuse("status", "remove it; the cluster writes it")
	o.close()
	return platform.Job{Name: namespace + "/" + name, Image: f.Image, Command: f.Command, Args: f.Args, Env: f.Env,
		CPULimitMillis: f.CPULimitMillis, MemoryLimit: f.MemoryLimit, Node: f.Node, Timeout: timeout, Policy: parsed}
}

// once takes the fields that say how often a job runs. Here that is once.
func once(spec object) {
	for _, n := range []struct {
		field       string
		lo, only    int64
		description string
	}{
		{"parallelism", 1, 1, "one container at a time"}, {"completions", 1, 1, "once"}, {"backoffLimit", 0, 0, "once, whatever becomes of it"},
	} {
		if v := spec.take(n.field); v.present() && v.integer(0, math.MaxInt32, n.only) != n.only {
			v.report(unsupported+": a job runs "+n.description, fmt.Sprintf("write %d, remove it, or run on Kubernetes", n.only))
		}
	}
	spec.take("ttlSecondsAfterFinished").integer(0, math.MaxInt32, 0) // nothing stays anyway
}
