package spec

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// Root is the directory in the sandbox below which all of Headstart's mounts lie. A
// program that does not look there sees no difference.
const Root = "/headstart/"

const (
	// maxMounts and maxEnv are far above what a sandbox has use for, and keep a
	// daemon's mistake from becoming a specification that runc chokes on.
	maxMounts = 64
	maxEnv    = 64
	// maxPath is the kernel's PATH_MAX less the closing NUL, in bytes.
	maxPath = 4095
	// maxName and maxValue keep a variable well below the kernel's 128 KiB for one
	// string of the environment (MAX_ARG_STRLEN, execve(2)), in bytes.
	maxName  = 128
	maxValue = 32 << 10
	// maxEnvironment bounds all variables together, in bytes. The kernel takes 128 KiB of arguments and
	// environment from any program (ARG_MAX), and the image has some of its own.
	maxEnvironment = 64 << 10
)

// nameForm has all names of the operator's destinations, which are DNS labels.
const nameForm = `[a-z0-9][a-z0-9-]{0,62}`

// destination is one name below Root: no mount lies in another one, or above all of them.
var destination = regexp.MustCompile(`^` + Root + nameForm + `$`)

// Socket is where a sandbox has its sockets. In it, and in no other mount, a container may have directories of its own:
// the containers of a pod share all else.
const Socket = Root + "socket"

// InSocket returns the name of a mount's directory in that of the sockets, empty for another mount.
func InSocket(m *nodeapi.Mount) string {
	name, is := strings.CutPrefix(m.GetDestination(), Socket+"/")
	if !is {
		return ""
	}
	return name
}

// descriptorsVariable names the descriptors that the program inherits, from the first one (3) on.
const descriptorsVariable = "HEADSTART_DESCRIPTORS"

// descriptorName is what a descriptor can be called, and a directory with sockets: a colon ends it.
var descriptorName = regexp.MustCompile(`^` + nameForm + `$`)

// envName is the part of the environment that is Headstart's: it can add no
// LD_PRELOAD, whatever the daemon says.
var envName = regexp.MustCompile(`^HEADSTART_[A-Z0-9_]*$`)

// Sandbox is what the shim knows of a sandbox without its daemon.
type Sandbox struct {
	// Directory is the base name of the sandbox's own directories.
	Directory string
	// Roots are the daemon's directories on the node.
	Roots []string
	// Volumes are those of its container; nil: it has none.
	Volumes *Volumes
	// Endpoints are where the shim listens on its loopback, host and port, by the endpoints' names.
	Endpoints map[string]string
	// Output is the directory of its outputs on the node, which is the shim's own; empty: it has none.
	Output string
	// UID is its pod's, empty outside Kubernetes.
	UID string
	// Pins is the directory in which runc finds the mounts' sources, by the last names of their
	// destinations. The daemon cannot write there.
	Pins string
}

// Within returns the root that a source lies below, and the names that lead there from the root.
func (sb Sandbox) Within(source string) (root string, names []string, ok bool) {
	for _, root := range sb.Roots {
		if rest, below := strings.CutPrefix(source, root+"/"); below {
			return root, strings.Split(rest, "/"), true
		}
	}
	return "", nil, false
}

// Pin is where runc finds a mount's source.
func (sb Sandbox) Pin(m *nodeapi.Mount) string {
	// No name has a dot in it.
	return path.Join(sb.Pins, strings.ReplaceAll(strings.TrimPrefix(m.GetDestination(), Root), "/", "."))
}

// Check tells whether d may be applied to the sandbox's specification. Its errors name the mount or
// the variable, never a variable's value.
func (sb Sandbox) Check(d *nodeapi.DescribeResponse) error {
	if n := len(d.GetMounts()); n > maxMounts {
		return fmt.Errorf("%d mounts, more than %d", n, maxMounts)
	}
	if n := len(d.GetEnv()); n > maxEnv {
		return fmt.Errorf("%d environment variables, more than %d", n, maxEnv)
	}
	seen := make(map[string]bool, len(d.GetMounts()))
	for _, m := range d.GetMounts() {
		if err := sb.checkMount(m); err != nil {
			return fmt.Errorf("mount %.100q: %w", m.GetDestination(), err)
		}
		if seen[m.GetDestination()] {
			return fmt.Errorf("mount %.100q: named twice", m.GetDestination())
		}
		if InSocket(m) != "" && !seen[Socket] {
			return fmt.Errorf("mount %.100q: not after the mount that it lies in", m.GetDestination())
		}
		seen[m.GetDestination()] = true
	}
	if n := len(d.GetDescriptors()); n > descriptors.Limit {
		return fmt.Errorf("%d descriptors, more than %d", n, descriptors.Limit)
	}
	for i, name := range d.GetDescriptors() {
		if !descriptorName.MatchString(name) || slices.Contains(d.GetDescriptors()[:i], name) {
			return fmt.Errorf("descriptor %.100q: named twice, or does not match %s", name, descriptorName)
		}
	}
	total := 0
	for _, e := range d.GetEndpoints() {
		if err := sb.checkEndpoint(e); err != nil {
			return fmt.Errorf("endpoint %.100q: %w", e.GetName(), err)
		}
		for name, value := range e.GetEnv() {
			total += len(name) + len(value)
		}
	}
	for name, value := range d.GetEnv() {
		if err := checkVariable(name, value); err != nil {
			return fmt.Errorf("environment variable %.100q: %w", name, err)
		}
		total += len(name) + len(value)
	}
	if total > maxEnvironment {
		return fmt.Errorf("environment of %d bytes, more than %d", total, maxEnvironment)
	}
	return nil
}

// checkMount allows what a sandbox has of its own, and the volumes of its namespace, to read. So no sandbox sees
// what is another's or the node's, whatever the daemon says.
func (sb Sandbox) checkMount(m *nodeapi.Mount) error {
	if err := checkPath(m.GetSource()); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	_, names, _ := sb.Within(m.GetSource())
	if name, is := strings.CutPrefix(m.GetDestination(), volumesRoot); is {
		if sb.Volumes == nil || !slices.Contains(sb.Volumes.Names, name) {
			return errors.New("destination: not a volume that the container's annotation names")
		}
		if !sb.Volumes.holds(names) {
			return errors.New("source: not a volume of the sandbox's namespace")
		}
	} else {
		// The sandbox's own are its directories, and those in them.
		if !slices.Contains(names[max(0, len(names)-2):], sb.Directory) {
			return errors.New("source: not a directory of the sandbox's own")
		}
		named := descriptorName.MatchString(InSocket(m)) || destination.MatchString(m.GetDestination())
		if !named || m.GetDestination()+"/" == volumesRoot {
			return fmt.Errorf("destination: does not match %s", destination)
		}
	}
	if !m.GetReadOnly() {
		return errors.New("not read-only")
	}
	return nil
}

func checkPath(p string) error {
	switch {
	case len(p) > maxPath:
		return fmt.Errorf("%d bytes, more than %d", len(p), maxPath)
	case !path.IsAbs(p):
		return errors.New("not absolute")
	case path.Clean(p) != p:
		return errors.New("not in its shortest form")
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("holds a control character")
	}
	return nil
}

func checkVariable(name, value string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("name of %d bytes, more than %d", len(name), maxName)
	case !envName.MatchString(name):
		return fmt.Errorf("name does not match %s", envName)
	}
	return checkValue(value)
}

func checkValue(value string) error {
	switch {
	case len(value) > maxValue:
		return fmt.Errorf("value of %d bytes, more than %d", len(value), maxValue)
	case strings.ContainsRune(value, 0):
		return errors.New("value holds a NUL")
	}
	return nil
}
