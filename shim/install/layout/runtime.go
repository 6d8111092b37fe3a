package layout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/install/edit"
)

const (
	runcType = "io.containerd.runc.v2"
	runcName = "runc"
	marker   = "# Written by headstart-installer, which also removes it.\n"
)

// inherited are settings of the default runtime that hold for ours too: a function's pod
// gets what any pod of this node gets.
var inherited = []string{
	"base_runtime_spec", "cgroup_writable", "cni_conf_dir", "cni_max_conf_num", "container_annotations", "pod_annotations",
	"privileged_without_host_devices", "privileged_without_host_devices_all_devices_allowed", "snapshotter",
}

// podAnnotations is the setting that has pods' annotations passed on to the shim.
const podAnnotations = "pod_annotations"

// withOurs adds those by which the shim knows a job, volumes, S3 and connections, to a list of pods' annotations.
func withOurs(inherited any) any {
	list, _ := inherited.([]any)
	return append(slices.Clone(list), filterapi.AnnotationInput, filterapi.AnnotationReadBy,
		filterapi.AnnotationVolumes, filterapi.AnnotationVolumesLate, filterapi.AnnotationS3, filterapi.AnnotationConnections)
}

// model returns the runtime that ours is modelled on: the default one if it is runc's,
// else the one named runc.
func (c *config) model() map[string]any {
	cri := c.containerd()
	name, _ := cri["default_runtime_name"].(string)
	for _, n := range []string{name, runcName} {
		if r := edit.Table(cri, "runtimes", n); r != nil && r["runtime_type"] == runcType {
			return r
		}
	}
	return nil
}

// runcOptions is the text of the file Options, nil if runc has no options here.
//
// containerd hands options of a runtime whose type is not its own on in one way that all
// versions know: as the path of a file.
func (c *config) runcOptions() (text []byte, systemd bool, err error) {
	options, _ := c.model()["options"].(map[string]any)
	said := map[string]any{}
	for k, v := range options {
		if !reflect.ValueOf(v).IsZero() {
			said[k] = v
		}
	}
	if len(said) == 0 {
		return nil, false, nil
	}
	body, err := toml.Marshal(said)
	if err != nil {
		return nil, false, fmt.Errorf("writing runc's options: %w", err)
	}
	systemd, _ = said["SystemdCgroup"].(bool)
	return append([]byte("# Options of runc, as containerd's configuration has them.\n"+marker), body...), systemd, nil
}

// body is the TOML of our runtime, for a configuration of the given version.
func (c *config) body(version int) (string, error) {
	table := fmt.Sprintf("plugins.%q.containerd.runtimes", plugin(version))
	var b strings.Builder
	b.WriteString(marker)
	// containerd 1.x forgets its own default runtime as soon as the configuration names any.
	if version < 3 && len(edit.Table(c.containerd(), "runtimes")) == 0 {
		fmt.Fprintf(&b, "[%s.%s]\n  runtime_type = %q\n", table, runcName, runcType)
	}
	// The type is the shim's path, which all versions since 1.6.0 take. Some take a path in
	// runtime_path for the sandbox only: those of 1.6 not even there, and others lose the
	// pod's containers when they restart (containerd issues 8207 and 10811).
	fmt.Fprintf(&b, "[%s.%s]\n  runtime_type = %q\n", table, Handler, Shim)
	model := c.model()
	for _, key := range inherited {
		v, ok := model[key]
		if key == podAnnotations {
			v, ok = withOurs(v), true
		}
		if !ok || reflect.ValueOf(v).IsZero() {
			continue
		}
		line, err := toml.Marshal(map[string]any{key: v})
		if err != nil {
			return "", fmt.Errorf("writing %s: %w", key, err)
		}
		b.WriteString("  " + string(line))
	}
	options, _, err := c.runcOptions()
	if err != nil {
		return "", err
	}
	if options != nil {
		fmt.Fprintf(&b, "  [%s.%s.options]\n    ConfigPath = %q\n", table, Handler, Options)
	}
	return b.String(), nil
}

// dropIn is a file of our own for a configuration of the given version. header is what it
// begins with.
func (c *config) dropIn(path, header string, version int) (File, error) {
	body, err := c.body(version)
	if err != nil {
		return File{}, err
	}
	return File{path, edit.Append(nil, header+body)}, nil
}

// extend is f with our runtime at its end, if that changes nothing else.
func (c *config) extend(f source, version int) (File, error) {
	body, err := c.body(version)
	if err != nil {
		return File{}, err
	}
	after := edit.Append(f.text, body)
	added, err := decode(f.path, []byte(body))
	if err != nil {
		return File{}, err
	}
	return File{f.path, after}, only(f, after, added.Tree)
}

// only refuses an edit of f unless the result is what f said, and what was added.
func only(f source, after []byte, added map[string]any) error {
	const fix = "write the tables above it with headers in brackets, or add the runtime by hand as the documentation of the installer says"
	result, err := edit.Parse(after)
	if err != nil {
		return &Refusal{f.path, edit.Line(f.text, "plugins"), "nothing can be added to its way of writing tables: " + err.Error(), fix}
	}
	if !reflect.DeepEqual(result.Tree, edit.Merge(f.Tree, added)) {
		return &Refusal{f.path, 0, "adding a runtime would change something else", fix}
	}
	return nil
}
