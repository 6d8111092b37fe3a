package nodeapi

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// directoryNameLimit is the longest name that a directory can have, in bytes.
const directoryNameLimit = 255

// NamespaceAnnotation is that of a container by which its shim knows the namespace. containerd's CRI plugin sets it,
// and so does a daemon that has its own sandboxes made.
const NamespaceAnnotation = "io.kubernetes.cri.sandbox-namespace"

// SandboxID is the id of the pod's sandbox, as the control plane has it, and as the kubelet names
// the directories of pods' logs.
func (p *Pod) SandboxID() string { return p.GetNamespace() + "_" + p.GetName() + "_" + p.GetUid() }

// List is the volumes as their annotation has them.
func (v *Volumes) List() string {
	var list []string
	for _, one := range v.GetVolumes() {
		list = append(list, one.GetName()+"="+one.GetPrefix())
	}
	return strings.Join(list, ",")
}

// SandboxDirectory is the name of the directories of a sandbox's own. Only an id that is longer
// than names may be has another.
func SandboxDirectory(id string) string {
	if len(id) <= directoryNameLimit {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
