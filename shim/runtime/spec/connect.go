package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	notifies = "SCMP_ACT_NOTIFY"
	allows   = "SCMP_ACT_ALLOW"
	// logs allows as well.
	logs    = "SCMP_ACT_LOG"
	connect = "connect"
)

// architectures are those of which programs run on a kernel, by Go's name of its own. One that a profile does not name
// cannot make any system call.
var architectures = map[string][]string{
	"amd64": {"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"},
	"arm64": {"SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"},
}

// Notify returns config with a seccomp profile that has connect(2) wait for the answer of who listens at a socket's
// path. In all else, the profile is as it was. Where it denies connect(2), has rules for it, or listens itself, it
// stays in force: then there is an error and no specification.
func Notify(config []byte, socket, arch string) ([]byte, error) {
	spec, err := parse(config)
	if err != nil {
		return nil, err
	}
	var linux, profile object
	if err := member(spec, "linux", &linux); err != nil {
		return nil, err
	}
	if linux == nil {
		linux = object{}
	}
	if err := member(linux, "seccomp", &profile); err != nil {
		return nil, err
	}
	if profile == nil {
		if architectures[arch] == nil {
			return nil, fmt.Errorf("no seccomp profile is known for %s", arch)
		}
		profile = object{}
		err = errors.Join(setMember(profile, "defaultAction", allows),
			setMember(profile, "architectures", architectures[arch]))
	}
	if err := errors.Join(err, notify(profile, socket)); err != nil {
		return nil, err
	}
	if err := errors.Join(setMember(linux, "seccomp", profile), setMember(spec, "linux", linux)); err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

// rule is what is looked into of a profile's.
type rule struct {
	Names  []string
	Action string
	Args   []json.RawMessage
}

func notify(profile object, socket string) error {
	var byDefault, listener string
	var all []json.RawMessage
	if err := errors.Join(member(profile, "defaultAction", &byDefault), member(profile, "listenerPath", &listener),
		member(profile, "syscalls", &all)); err != nil {
		return err
	}
	if listener != "" || byDefault == notifies {
		return errors.New("the seccomp profile has a listener of its own")
	}
	allowed := byDefault == allows || byDefault == logs
	var kept []json.RawMessage
	for i, raw := range all {
		var r rule
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("specification: seccomp rule %d: %w", i, err)
		}
		switch {
		case r.Action == notifies:
			return errors.New("the seccomp profile has a listener of its own")
		case !slices.Contains(r.Names, connect):
			kept = append(kept, raw)
			continue
		case r.Action != allows && r.Action != logs || len(r.Args) > 0:
			return errors.New("the seccomp profile has a rule for connect")
		}
		allowed = true
		var without object
		if err := json.Unmarshal(raw, &without); err != nil {
			return fmt.Errorf("specification: seccomp rule %d: %w", i, err)
		}
		names := slices.DeleteFunc(r.Names, func(name string) bool { return name == connect })
		if len(names) == 0 {
			continue // a rule without names is none
		}
		if err := setMember(without, "names", names); err != nil {
			return err
		}
		rest, err := json.Marshal(without)
		if err != nil {
			return fmt.Errorf("specification: seccomp rule %d: %w", i, err)
		}
		kept = append(kept, rest)
	}
	if !allowed {
		return errors.New("the seccomp profile denies connect")
	}
	own, err := json.Marshal(map[string]any{"names": []string{connect}, "action": notifies})
	if err != nil {
		return fmt.Errorf("specification: seccomp: %w", err)
	}
	return errors.Join(setMember(profile, "listenerPath", socket), setMember(profile, "syscalls", append(kept, own)))
}
