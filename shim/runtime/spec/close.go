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

// Closed returns config without the capability to send packets past the rules of its network. With a reason, the container cannot be
// closed, and config is as it was: what its program does could be seen by others.
func Closed(config []byte) (_ []byte, why string, err error) {
	spec, err := parse(config)
	if err != nil {
		return nil, "", err
	}
	var mounts []struct {
		Type, Source, Destination string
		Options                   []string
	}
	if err := member(spec, "mounts", &mounts); err != nil {
		return nil, "", err
	}
	for _, m := range mounts {
		if !slices.Contains(ownSources, m.Type) && !slices.Contains(m.Options, "ro") {
			return config, fmt.Sprintf("it can write to %s, which others may see", m.Destination), nil
		}
	}
	var process, sets object
	if err := member(spec, "process", &process); err != nil {
		return nil, "", err
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
