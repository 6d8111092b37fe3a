package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// rawCapability is the one by which a program sends packets past the rules of its network.
const rawCapability = "CAP_NET_RAW"

// openers are capabilities by which a program changes the rules, or gets out of its sandbox.
var openers = []string{"CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_BPF"}

// ownSources begin what programs share with nobody, beside what the daemon has described.
var ownSources = []string{"proc", "tmpfs", "devpts", "mqueue", "sysfs", "cgroup", "cgroup2"}

// ofPod are what a pod's containers share with nobody, below the pod's own directory of the kubelet's: the file of hosts, that of its
// last words, and emptyDirs.
var ofPod = []string{"etc-hosts", "containers/", "volumes/kubernetes.io~empty-dir/"}

// ofRuntime has what containerd makes for a pod and mounts at these places.
const ofRuntime = "/io.containerd.grpc.v1.cri/sandboxes/"

var fromRuntime = []string{"/etc/hostname", "/etc/resolv.conf", "/dev/shm"}

// shared tells whether others may see what is written there. uid is the pod's; empty: the container is of none.
func (m mount) shared(uid string) bool {
	if slices.Contains(ownSources, m.Type) || slices.Contains(m.Options, "ro") {
		return false
	}
	if uid == "" {
		return true
	}
	if strings.Contains(m.Source, ofRuntime) && slices.Contains(fromRuntime, m.Destination) {
		return false
	}
	_, in, found := strings.Cut(m.Source, "/pods/"+uid+"/")
	return !found || !slices.ContainsFunc(ofPod, func(own string) bool { return strings.HasPrefix(in, own) })
}

// Closed returns config without the capability to send packets past the rules of its network. uid is that of the container's pod, empty
// if it is of none, and passes the user whose packets pass the rules, if not nil. With a reason, the container cannot be closed, and
// config is as it was: what its program does could be seen by others.
func Closed(config []byte, uid string, passes *uint32) (_ []byte, why string, err error) {
	spec, err := parse(config)
	if err != nil {
		return nil, "", err
	}
	var mounts []mount
	if err := member(spec, "mounts", &mounts); err != nil {
		return nil, "", err
	}
	for _, m := range mounts {
		if m.shared(uid) {
			return config, fmt.Sprintf("it can write to %s, which others may see", m.Destination), nil
		}
	}
	var process, sets object
	if err := member(spec, "process", &process); err != nil {
		return nil, "", err
	}
	var user struct{ UID uint32 }
	if err := member(process, "user", &user); err != nil {
		return nil, "", err
	}
	if passes != nil && user.UID == *passes {
		return config, fmt.Sprintf("its program runs as user %d, as its sidecar does", user.UID), nil
	}
	if err := member(process, "capabilities", &sets); err != nil || sets == nil {
		return config, "", err
	}
	for name := range sets {
		var set []string
		if err := member(sets, name, &set); err != nil {
			return nil, "", err
		}
		if at := slices.IndexFunc(set, func(c string) bool { return slices.Contains(openers, c) }); at >= 0 {
			return config, "its program has " + set[at], nil
		}
		set = slices.DeleteFunc(set, func(c string) bool { return strings.EqualFold(c, rawCapability) })
		if err := setMember(sets, name, set); err != nil {
			return nil, "", err
		}
	}
	if err := setMember(process, "capabilities", sets); err != nil {
		return nil, "", err
	}
	if err := setMember(spec, "process", process); err != nil {
		return nil, "", err
	}
	config, err = json.Marshal(spec)
	return config, "", err
}
