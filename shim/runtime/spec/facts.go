package spec

import (
	"fmt"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// containerTypes are the annotations by which a runtime tells a pod's infrastructure
// container from the others: containerd's CRI plugin and CRI-O.
var containerTypes = []string{
	"io.kubernetes.cri.container-type",
	"io.kubernetes.cri-o.ContainerType",
}

// The annotations by which containerd's CRI plugin says which pod a container is of.
// containerd before 1.7 names no uid.
const (
	podNamespace  = nodeapi.NamespaceAnnotation
	podName       = "io.kubernetes.cri.sandbox-name"
	podUID        = "io.kubernetes.cri.sandbox-uid"
	podContainer  = "io.kubernetes.cri.container-name"
	podSandboxDir = "io.kubernetes.cri.sandbox-log-directory"
)

// Facts are what a specification says of its container.
type Facts struct {
	// Pause is true for a pod's infrastructure ("pause") container. It runs no function,
	// and nothing belongs in it.
	Pause bool
	// Pod is the Kubernetes pod that the container belongs to, nil if it is of none.
	Pod *nodeapi.Pod
	// SystemdCgroup is true when the container's cgroup is systemd's to make.
	SystemdCgroup bool
	// Job is true when the container has an input of its own.
	Job bool
	// AwaitsInput is true when the program must not start before its input is there.
	AwaitsInput bool
	// Volumes are those that the container has, nil for none.
	Volumes *Volumes
	// S3 is the store whose S3 API the container's program is to find, empty for none.
	S3 string
	// Connections is true when the container's annotations name destinations that its program is to be connected to.
	Connections bool
	// Network is the path of the container's network namespace, empty if it has none of its own that another process
	// can enter.
	Network string
	// Memory is the container's limit of memory in bytes, 0 for none.
	Memory int64
	// Left says by the name of an endpoint why the container goes without it: it has what the endpoint would tell.
	Left map[string]string
}

// SandboxID is the id of the sandbox of a container.
func (f Facts) SandboxID(container string) string {
	if f.Pod == nil {
		return container
	}
	return f.Pod.SandboxID()
}

// Demands is what the container is not to be made without, in words; empty: nothing.
func (f Facts) Demands() string {
	switch {
	case f.Volumes != nil && !f.Volumes.StartLate:
		return "the container's volumes"
	case f.AwaitsInput:
		return "the job's input"
	}
	return ""
}

// Volumes are what a container's annotations say of its volumes.
type Volumes struct {
	// Namespace is the container's own, which no other one's volumes are mounted in.
	Namespace string
	// Names are the volumes' own; empty: the list is none.
	Names []string
	// StartLate: the container starts without those that are late.
	StartLate bool
}

// Read returns what config, the content of a bundle's config.json, says of its
// container.
func Read(config []byte) (Facts, error) {
	var f Facts
	spec, err := parse(config)
	if err != nil {
		return f, err
	}
	var annotations map[string]string
	if err := member(spec, "annotations", &annotations); err != nil {
		return f, fmt.Errorf("looking for the container's pod: %w", err)
	}
	var linux struct {
		CgroupsPath string `json:"cgroupsPath"`
		Namespaces  []struct{ Type, Path string }
		Resources   struct{ Memory struct{ Limit int64 } }
	}
	if err := member(spec, "linux", &linux); err != nil {
		return f, fmt.Errorf("looking for the container's cgroup and namespaces: %w", err)
	}
	for _, name := range containerTypes {
		f.Pause = f.Pause || annotations[name] == "sandbox"
	}
	// containerd passes the annotations on from the pod, by the runtime's pod_annotations.
	f.Job = !f.Pause && annotations[filterapi.AnnotationInput] != ""
	f.AwaitsInput = f.Job && annotations[filterapi.AnnotationReadBy] != filterapi.ReadBySocket
	f.Connections = !f.Pause && annotations[filterapi.AnnotationConnections] != ""
	f.Pod = pod(annotations)
	if list := annotations[filterapi.AnnotationVolumes]; list != "" && !f.Pause {
		f.Volumes = &Volumes{Namespace: annotations[podNamespace],
			StartLate: annotations[filterapi.AnnotationVolumesLate] == filterapi.LateStart}
		volumes, _ := reference.ParseVolumes(list) // what is wrong with it, the daemon says
		for _, v := range volumes {
			f.Volumes.Names = append(f.Volumes.Names, v.Name)
		}
	}
	f.SystemdCgroup = systemd(linux.CgroupsPath)
	f.Memory = max(0, linux.Resources.Memory.Limit) // runc takes -1 for none
	for _, n := range linux.Namespaces {
		if n.Type == "network" {
			f.Network = n.Path
		}
	}
	if f.S3 = annotations[filterapi.AnnotationS3]; f.S3 == "" || f.Pause {
		f.S3 = ""
		return f, nil
	}
	if f.Left, err = left(spec, f.Network); err != nil {
		return Facts{}, fmt.Errorf("looking for what the container has of its own: %w", err)
	}
	return f, nil
}

// pod returns nil unless the annotations name one.
func pod(annotations map[string]string) *nodeapi.Pod {
	p := &nodeapi.Pod{Namespace: annotations[podNamespace], Name: annotations[podName],
		Uid: annotations[podUID], Container: annotations[podContainer]}
	if p.GetUid() == "" { // an old containerd's: the kubelet's log directory ends with it
		_, p.Uid, _ = strings.Cut(annotations[podSandboxDir], "/"+p.GetNamespace()+"_"+p.GetName()+"_")
	}
	if p.GetNamespace() == "" || p.GetName() == "" || p.GetUid() == "" {
		return nil
	}
	return p
}

// systemd tells the form of systemd's cgroups, "slice:prefix:name", from a path.
func systemd(cgroup string) bool {
	parts := strings.Split(cgroup, ":")
	return len(parts) == 3 && !strings.Contains(cgroup, "/") && strings.HasSuffix(parts[0], ".slice") && parts[2] != ""
}
