package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/pelletier/go-toml/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// runcOptions and genericOptions are how the types of options end; what is before the
	// name differs from version to version.
	runcOptions = "containerd.runc.v1.Options"
	// genericOptions are what containerd's CRI plugin sends for a runtime whose type is not
	// its own.
	genericOptions = "runtimeoptions.v1.Options"
	// maxOptions bounds the TOML of options, in bytes. There are twelve of them.
	maxOptions = 64 << 10
)

// GenericOptions tells whether sent are options in the form for runtimes of other types
// than runc's.
func GenericOptions(sent *anypb.Any) bool {
	return strings.HasSuffix(sent.GetTypeUrl(), genericOptions)
}

// RuncOptions returns what containerd sent as options of this runtime in the form that
// runc's shim takes. systemd is whether the container's cgroup is systemd's: it counts
// where the options do not say it, since the kubelet has chosen by then.
//
// For a runtime whose type is not its own, containerd's CRI plugin sends TOML, or the
// path of a file with it. The names in it are those of runc's own options.
func RuncOptions(sent *anypb.Any, systemd bool) (*options.Options, error) {
	o := &options.Options{}
	switch name := sent.GetTypeUrl(); {
	case len(sent.GetValue()) == 0:
		o.SystemdCgroup = systemd
		return o, nil
	case strings.HasSuffix(name, runcOptions):
		if err := proto.Unmarshal(sent.GetValue(), o); err != nil {
			return nil, fmt.Errorf("reading runc's options: %w", err)
		}
		return o, nil
	case GenericOptions(sent):
		var g runtimeoptions.Options
		if err := proto.Unmarshal(sent.GetValue(), &g); err != nil {
			return nil, fmt.Errorf("reading the runtime's options: %w", err)
		}
		return fromTOML(&g, systemd)
	default:
		return nil, fmt.Errorf("the runtime's options are of type %.100q, not %s", name, runcOptions)
	}
}

// fromTOML reads options that name themselves as runc's, or nothing else.
func fromTOML(g *runtimeoptions.Options, systemd bool) (*options.Options, error) {
	if t := g.GetTypeUrl(); t != "" && !strings.HasSuffix(t, runcOptions) {
		return nil, fmt.Errorf("the runtime's options have a TypeUrl %.100q, not %s", t, runcOptions)
	}
	text, err := g.GetConfigBody(), error(nil)
	if g.GetConfigPath() != "" {
		text, err = readOptions(g.GetConfigPath())
	}
	if err != nil {
		return nil, fmt.Errorf("reading the runtime's options: %w", err)
	}
	if len(text) > maxOptions {
		return nil, fmt.Errorf("the runtime's options have over %d bytes", maxOptions)
	}
	var said struct{ SystemdCgroup *bool }
	o := &options.Options{}
	if err := errors.Join(toml.Unmarshal(text, o), toml.Unmarshal(text, &said)); err != nil {
		return nil, fmt.Errorf("the runtime's options are not those of runc: %w", err)
	}
	if said.SystemdCgroup == nil {
		o.SystemdCgroup = systemd
	}
	return o, nil
}

func readOptions(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than allowed shows that there is too much.
	return io.ReadAll(io.LimitReader(f, maxOptions+1))
}
