// Package layout knows where Kubernetes distributions keep containerd's configuration,
// and what has to stand there for a runtime named headstart. It writes nothing.
package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Where Headstart's own files are on a node.
const (
	Home    = "/opt/headstart"
	Shim    = Home + "/bin/containerd-shim-headstart-v2"
	Options = Home + "/etc/runc.toml"
)

// Handler is the runtime's name in RuntimeClasses, CRI and containerd's configuration.
const Handler = "headstart"

// Kind is a distribution's way to keep containerd's configuration.
type Kind string

// The kinds there are.
const (
	Containerd Kind = "containerd" // as its own documentation says, so kubeadm, kubespray and clouds
	K3s        Kind = "k3s"
	RKE2       Kind = "rke2"
	K0s        Kind = "k0s"
	MicroK8s   Kind = "microk8s"
)

// View is a node's files as they would be without Headstart.
type View interface {
	// Read fails with fs.ErrNotExist for a file that is not there.
	Read(path string) ([]byte, error)
	// List returns the names in a directory, none if it is not there.
	List(dir string) ([]string, error)
	Exists(path string) bool
}

// Plan is what has to be on a node.
type Plan struct {
	Kind   Kind
	Socket string // containerd's
	// Config are the files that containerd, or what starts it, reads.
	Config []File
	// RuncOptions is what belongs into the file Options, nil for nothing.
	RuncOptions []byte
	// SystemdCgroup is whether runc is configured for systemd's cgroups.
	SystemdCgroup bool
	// Watched is whether the distribution restarts containerd by itself when Config
	// changes.
	Watched bool
	// Notes are for people.
	Notes []string
}

// File is a file of a plan.
type File struct {
	Path string
	Data []byte
}

// Refusal is why a node cannot be changed without risk, and what to do.
type Refusal struct {
	Path string
	Line int // 0 if it is not of one line
	What string
	Fix  string
}

// Error names file, line and fix.
func (r *Refusal) Error() string {
	at := r.Path
	if r.Line > 0 {
		at = fmt.Sprintf("%s:%d", r.Path, r.Line)
	}
	return fmt.Sprintf("%s: %s; %s", at, r.What, r.Fix)
}

// place is where a kind has its things.
type place struct {
	kind   Kind
	socket string
	// signs are files of which one is there where the kind is.
	signs []string
	plan  func(View, string) (*Plan, error)
	// config is the file that the plan begins with.
	config string
}

const (
	rancher  = "/var/lib/rancher/"
	agentEtc = "/agent/etc/containerd"
)

// MaxConfig bounds a configuration, in bytes: the largest ones have some ten thousand.
const MaxConfig = 1 << 20

// places has distributions first: containerd may also be there, for Docker.
var places = []place{
	{K3s, "/run/k3s/containerd/containerd.sock", []string{rancher + "k3s" + agentEtc + "/config.toml"}, planRancher, rancher + "k3s" + agentEtc + "/config.toml"},
	{RKE2, "/run/k3s/containerd/containerd.sock", []string{rancher + "rke2" + agentEtc + "/config.toml"}, planRancher, rancher + "rke2" + agentEtc + "/config.toml"},
	{K0s, "/run/k0s/containerd.sock", []string{"/etc/k0s/containerd.toml", "/var/lib/k0s/bin/containerd"}, planK0s, "/etc/k0s/containerd.toml"},
	{MicroK8s, "/var/snap/microk8s/common/run/containerd.sock", []string{microTemplate}, planMicroK8s, microTemplate},
	{Containerd, "/run/containerd/containerd.sock", []string{plainConfig, "/usr/bin/containerd", "/usr/local/bin/containerd"}, planPlain, plainConfig},
}

// Kinds are the names that Find knows.
func Kinds() []string {
	var all []string
	for _, p := range places {
		all = append(all, string(p.kind))
	}
	return all
}

// Socket is where containerd listens by default on a node of kind k, empty for no kind.
func Socket(k Kind) string {
	for _, p := range places {
		if p.kind == k {
			return p.socket
		}
	}
	return ""
}

// Detect tells which kind a node is. What has a socket, so runs or has run since the
// node's start, counts before what has files only, and a distribution before containerd
// itself.
func Detect(v View) (Kind, error) {
	var present, live []place
	for _, p := range places {
		socket := v.Exists(p.socket)
		signs := false
		for _, s := range p.signs {
			signs = signs || v.Exists(s)
		}
		switch {
		case signs && socket, socket && p.kind == Containerd:
			live = append(live, p)
		case signs:
			present = append(present, p)
		}
	}
	found := live
	if len(found) == 0 {
		found = present
	}
	if len(found) > 1 && found[len(found)-1].kind == Containerd {
		found = found[:len(found)-1]
	}
	switch len(found) {
	case 0:
		return "", errors.New("no containerd found on this node: there is neither its socket nor its configuration at a known place; " +
			"say which it is with --layout, or where they are with --config and --socket")
	case 1:
		return found[0].kind, nil
	}
	var names []string
	for _, p := range found {
		names = append(names, string(p.kind))
	}
	return "", fmt.Errorf("this node may be %s: files of each are there; say which it is with --layout", strings.Join(names, " or "))
}

// Make returns the plan for a node of kind k. config is the path of containerd's
// configuration, empty for the kind's own.
func Make(v View, k Kind, config string) (*Plan, error) {
	for _, p := range places {
		if p.kind != k {
			continue
		}
		if config == "" {
			config = p.config
		}
		plan, err := p.plan(v, config)
		if err != nil {
			return nil, err
		}
		plan.Kind = k
		if plan.Socket == "" {
			plan.Socket = p.socket
		}
		return plan, nil
	}
	return nil, fmt.Errorf("no layout %q; there are %s", k, strings.Join(Kinds(), ", "))
}

// optional is a file's content, nil if it is not there.
func optional(v View, path string) ([]byte, error) {
	text, err := v.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
