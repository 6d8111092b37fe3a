package knative

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/workflow"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// A workflow is an object of Headstart's own.
const (
	workflowVersion = "headstart.dev/v1alpha1"
	workflowKind    = "Workflow"
)

// workflow reads one document, as service does.
func (d *document) workflow(v value, st stores.Stores) platform.Function {
	o := v.object()
	if !d.is(o, workflowVersion, workflowKind) {
		return platform.Function{}
	}
	meta := o.must("metadata", "give the workflow a name").object()
	name, namespace := d.named(meta)
	f := platform.Function{Name: namespace + "/" + name, Hosts: hosts(name, namespace), RequestTimeout: defaultTimeout * time.Second}
	f.Policy = d.parsed(meta.take("annotations").object(), func(given map[string]string) (policy.Policy, error) {
		return policy.ParseWorkflow(given, st.For(namespace))
	})
	meta.close()
	spec := o.must("spec", "put the document of the workflow here")
	o.refuse("status", "remove it; the cluster writes it")
	o.close()
	if !spec.present() {
		return f
	}
	compiled, err := compile(spec.node)
	if wrong, is := errors.AsType[*workflow.Error](err); is {
		path, at := find(spec, wrong.Path)
		d.add(at, &field.Error{Field: path, Problem: wrong.What, Fix: "see docs/reference/workflows.md"})
		return f
	} else if err != nil {
		spec.report("is no document of a workflow: "+err.Error(), "write it as the Serverless Workflow DSL 1.0 says")
		return f
	}
	if timeout := compiled.GetTimeout().AsDuration(); timeout > 0 {
		f.RequestTimeout = min(timeout, maxTimeout*time.Second)
	}
	if f.Workflow, err = (proto.MarshalOptions{Deterministic: true}).Marshal(compiled); err != nil {
		spec.report("cannot be told to nodes: "+err.Error(), "make it smaller")
	}
	return f
}

// compile compiles a document as it stands in YAML.
func compile(n *yaml.Node) (*nodeapi.Workflow, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return workflow.Compile(b)
}

// find returns the name of a part of a value in the notation of Kubernetes, by its JSON pointer, and its line.
func find(v value, pointer string) (path string, line int) {
	path, line = v.path, v.line
	n := v.node
	for _, part := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		i, err := strconv.Atoi(part)
		if n != nil && n.Kind == yaml.SequenceNode && err == nil {
			path = fmt.Sprintf("%s[%d]", path, i)
			if i >= len(n.Content) {
				return path, line
			}
			n = n.Content[i]
			line = n.Line
			continue
		}
		path = join(path, part)
		if n == nil || n.Kind != yaml.MappingNode {
			continue
		}
		at := slices.IndexFunc(n.Content, func(key *yaml.Node) bool { return key.Value == part })
		if at < 0 || at%2 != 0 {
			n = nil
			continue
		}
		line, n = n.Content[at].Line, n.Content[at+1]
	}
	return path, line
}

// said is what a node has at a path of names, empty if that is no scalar.
func said(n *yaml.Node, path ...string) string {
	for _, name := range path {
		if n == nil || n.Kind != yaml.MappingNode {
			return ""
		}
		at := slices.IndexFunc(n.Content, func(key *yaml.Node) bool { return key.Value == name })
		if at < 0 || at%2 != 0 {
			return ""
		}
		n = n.Content[at+1]
	}
	return n.Value
}

// hosts are the authorities that a function answers to.
func hosts(name, namespace string) []string {
	return []string{name + "." + namespace + "." + Domain, name + "." + namespace}
}
