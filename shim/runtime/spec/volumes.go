package spec

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// volumesRoot is where a sandbox sees its volumes, each by its name.
const volumesRoot = Root + "volumes/"

// treeID is the name of a version of a volume: a digest.
var treeID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// holds tells whether the names lead to a volume that belongs to the container's namespace.
func (v *Volumes) holds(names []string) bool {
	if len(names) < 4 || v.Namespace == "" {
		return false
	}
	at := names[len(names)-4:]
	return at[0] == "volumes" && at[1] == v.Namespace && treeID.MatchString(at[2]) && at[3] == "files"
}

// emptyDir tells whether a mount of the specification is all of the pod's own emptyDir of that name, as the
// kubelet has them below whatever directory is its own.
func (sb Sandbox) emptyDir(m mount, name string) bool {
	before, ok := strings.CutSuffix(m.Source, "/pods/"+sb.UID+"/volumes/kubernetes.io~empty-dir/"+name)
	return ok && sb.UID != "" && m.Type == "bind" && path.IsAbs(before) && path.Clean(m.Source) == m.Source
}

// replace puts a volume in the place of the pod's own emptyDir of its name. Nothing can be mounted in a volume,
// which is read-only.
func (sb Sandbox) replace(mounts []json.RawMessage, own mount) error {
	name, is := strings.CutPrefix(own.Destination, volumesRoot)
	if !is {
		return nil
	}
	all := make([]mount, len(mounts))
	for i, raw := range mounts {
		if err := json.Unmarshal(raw, &all[i]); err != nil {
			return fmt.Errorf("specification: mount %d: %w", i, err)
		}
	}
	for i, m := range all {
		if !sb.emptyDir(m, name) {
			continue
		}
		for _, other := range all {
			if strings.HasPrefix(path.Clean(other.Destination), path.Clean(m.Destination)+"/") {
				return fmt.Errorf("volume %q: the specification has a mount within the emptyDir of that name", name)
			}
		}
		here := own
		here.Destination = m.Destination
		raw, err := json.Marshal(here)
		if err != nil {
			return fmt.Errorf("volume %q: %w", name, err)
		}
		mounts[i] = raw
	}
	return nil
}
