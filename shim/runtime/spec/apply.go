// Package spec turns an OCI runtime specification into one of a sandbox that holds
// what the node's daemon described: OCI spec in, spec out. It touches no file.
//
// The specification is edited as raw JSON. It comes from whatever version of
// containerd runs on the node, so it may have fields that no Go type here knows, and
// each of them has to reach runc as it came.
package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// MaxConfig is the size in bytes of the largest config.json that is read. containerd
// takes no request of over 16 MiB, so it cannot have been asked for a larger one.
const MaxConfig = 16 << 20

// Apply returns config, the content of a bundle's config.json, with d's mounts, which runc finds at the sandbox's
// pins, and d's environment, which names d's descriptors. All or nothing: if any part of d is not allowed, or config is
// not a specification, it returns an error and no specification. Applying the same d again changes nothing; with an
// empty d, config is returned as it is.
//
// An environment variable replaces one of the same name, unless an endpoint only offers it. A volume also replaces the
// pod's own emptyDir of its name. A mount is refused where the specification has another one, or one that it would
// hide: that mount is its owner's. Of the directory of outputs the container has none then.
func Apply(config []byte, sb Sandbox, d *nodeapi.DescribeResponse) ([]byte, error) {
	if err := sb.Check(d); err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	env := map[string]string{}
	maps.Copy(env, d.GetEnv())
	if names := d.GetDescriptors(); len(names) > 0 {
		env[descriptorsVariable] = strings.Join(names, ":")
	}
	if len(d.GetMounts())+len(d.GetEndpoints()) == 0 && len(env) == 0 {
		return config, nil
	}
	spec, err := parse(config)
	if err != nil {
		return nil, err
	}
	if err := sb.withEndpoints(spec, env, d.GetEndpoints()); err != nil {
		return nil, err
	}
	has, err := sources(spec)
	if err != nil {
		return nil, err
	}
	var mounts []mount
	for _, m := range d.GetMounts() {
		if InSocket(m) == "" {
			mounts = append(mounts, sb.bind(m, nests(d, m)))
		}
	}
	if out := sb.output(); out.Source != "" && (!taken(has, Output) || has[Output] == out.Source) {
		mounts, env[outputVariable] = append(mounts, out), Output
	}
	if err := addMounts(spec, sb, mounts); err != nil {
		return nil, err
	}
	if err := addEnv(spec, env); err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

// object is a JSON object of which only some members are looked into.
type object map[string]json.RawMessage

func parse(config []byte) (object, error) {
	if len(config) > MaxConfig {
		return nil, fmt.Errorf("specification: %d bytes, more than %d", len(config), MaxConfig)
	}
	var spec object
	if err := json.Unmarshal(config, &spec); err != nil {
		return nil, fmt.Errorf("specification: %w", err)
	}
	if spec == nil {
		return nil, errors.New("specification: not an object")
	}
	return spec, nil
}

// mount is a bind mount in the form of the OCI runtime specification.
type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// bind returns m for the specification. What the daemon puts into a sandbox is data to read:
// no device, no setuid bit and no program in it works, and no mount below it is there but those that the shim has made.
func (sb Sandbox) bind(m *nodeapi.Mount, nests bool) mount {
	bind := "bind"
	if nests {
		bind = "rbind"
	}
	return mount{
		Destination: m.GetDestination(), Type: "bind", Source: sb.Pin(m),
		Options: []string{bind, "ro", "nosuid", "nodev", "noexec"},
	}
}

// nests tells whether other mounts of d lie in m. They come with it: were runc to make them by their paths, the daemon
// could lead these elsewhere in the sandbox.
func nests(d *nodeapi.DescribeResponse, m *nodeapi.Mount) bool {
	return m.GetDestination() == Socket &&
		slices.ContainsFunc(d.GetMounts(), func(other *nodeapi.Mount) bool { return InSocket(other) != "" })
}

// output is where the program writes what it wants to be objects: data as well, and of the container's own memory.
func (sb Sandbox) output() mount {
	return mount{Destination: Output, Type: "bind", Source: sb.Output,
		Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}}
}

// addMounts appends, because runc mounts in the order of the list: ours come to lie on
// top of a mount of one of their parents.
func addMounts(spec object, sb Sandbox, add []mount) error {
	if len(add) == 0 {
		return nil
	}
	var mounts []json.RawMessage
	if err := member(spec, "mounts", &mounts); err != nil {
		return err
	}
	has, err := sources(spec)
	if err != nil {
		return err
	}
	for _, own := range add {
		if has[own.Destination] == own.Source {
			continue
		}
		if taken(has, own.Destination) {
			return fmt.Errorf("mount %q: the specification has a mount of its own there", own.Destination)
		}
		if err := sb.replace(mounts, own); err != nil {
			return err
		}
		raw, err := json.Marshal(own)
		if err != nil {
			return fmt.Errorf("mount %q: %w", own.Destination, err)
		}
		mounts = append(mounts, raw)
		has[own.Destination] = own.Source
	}
	return setMember(spec, "mounts", mounts)
}

// sources are those of a specification's mounts, by their destinations.
func sources(spec object) (map[string]string, error) {
	var mounts []json.RawMessage
	if err := member(spec, "mounts", &mounts); err != nil {
		return nil, err
	}
	all := make(map[string]string, len(mounts))
	for i, raw := range mounts {
		var m mount
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("specification: mount %d: %w", i, err)
		}
		all[path.Clean(m.Destination)] = m.Source
	}
	return all, nil
}

// taken tells whether there is a mount at a path or below it.
func taken(has map[string]string, at string) bool {
	for other := range has {
		if strings.HasPrefix(other+"/", at+"/") {
			return true
		}
	}
	return false
}

// addEnv puts add into the process's environment, in the order of the names, so that
// the same description gives the same specification.
func addEnv(spec object, add map[string]string) error {
	if len(add) == 0 {
		return nil
	}
	var process object
	if err := member(spec, "process", &process); err != nil {
		return err
	}
	if process == nil {
		return errors.New("specification: no process to give an environment to")
	}
	var before []json.RawMessage
	if err := member(process, "env", &before); err != nil {
		return err
	}
	env := make([]json.RawMessage, 0, len(before)+len(add))
	for i, raw := range before {
		var variable string
		if err := json.Unmarshal(raw, &variable); err != nil {
			return fmt.Errorf("specification: environment variable %d: not a string", i)
		}
		name, _, _ := strings.Cut(variable, "=")
		if _, replaced := add[name]; !replaced {
			env = append(env, raw)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(add)) {
		raw, err := json.Marshal(name + "=" + add[name])
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		env = append(env, raw)
	}
	if err := setMember(process, "env", env); err != nil {
		return err
	}
	return setMember(spec, "process", process)
}

// member reads o's member name into to, which stays as it is if there is none.
func member(o object, name string, to any) error {
	raw, ok := o[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("specification: %s: %w", name, err)
	}
	return nil
}

func setMember(o object, name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("specification: %s: %w", name, err)
	}
	o[name] = raw
	return nil
}
